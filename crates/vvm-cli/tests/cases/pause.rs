//! `vvm pause` and `vvm resume`: between the two nobody works, whoever comes and goes meanwhile.

use crate::VVM;
use harness::{Running, Trial, command_line, eventually};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Signal, kill_process},
};
use serde_json::Value;
use std::{
    fs::File,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

fn pause(trial: &Trial, arguments: &[&str]) -> (i32, String, String) {
    trial.ask("pause", &[&["--name", &trial.name()], arguments].concat())
}

fn resume(trial: &Trial) -> (i32, String, String) {
    trial.ask("resume", &["--name", &trial.name()])
}

fn slots(trial: &Trial) -> Vec<Value> {
    serde_json::from_str(&trial.status(&["--name", &trial.name(), "--json"]).1).unwrap()
}

/// How many commands there are.
fn workers(trial: &Trial) -> usize {
    trial.processes().0.into_iter().filter(|pid| command_line(*pid).starts_with("sleep 1000")).count()
}

#[test]
fn leaders_stop_everybody_waits_and_says_so_and_after_it_somebody_leads() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo works; exec sleep 1000").with(["--holder", "a"]).start();
    leader.stdout.wait_for("works");
    let mut candidate = trial.run_script("echo works; exec sleep 1000").with(["--holder", "b"]).start();
    candidate.stderr.wait_for("waiting for leadership");

    let (code, out, error) = pause(&trial, &["--by", "alice", "--reason", "new schema"]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains(&format!("{}: paused by alice: new schema\n", trial.name())), "{out}");
    assert!(out.contains("nobody leads, and nobody will until `vvm resume`"), "{out}");
    assert_eq!(workers(&trial), 0);
    leader.stderr.wait_for("stopping the work: paused by alice: new schema");
    leader.stderr.wait_for("waiting until it is resumed");
    candidate.stderr.wait_for("paused by alice: new schema; waiting until it is resumed");

    let found = slots(&trial);
    assert_eq!((&found[0]["state"], &found[0]["paused_by"]), (&"free".into(), &"alice: new schema".into()));
    let (_, table, _) = trial.status(&["--name", &trial.name()]);
    assert!(table.contains("paused by alice: new schema, since 20"), "{table}");
    // It stands already, and whoever paused first is shown.
    let (code, out, _) = pause(&trial, &["--by", "bob"]);
    assert_eq!(code, 0);
    assert!(out.contains("paused already, by alice: new schema, since 20"), "{out}");
    let (code, _, error) = trial.ask("step-down", &["--name", &trial.name()]);
    assert_eq!(code, 75, "{error}");

    // Whoever comes now leaves as it would without a leader in time, and says why.
    let late = trial.run(["echo", "works"]).with(["--acquire-timeout", "0"]).finish();
    assert_eq!((late.code(), late.stdout.len()), (75, 0));
    assert!(late.says("paused by alice: new schema"), "{:#?}", late.stderr);

    let (code, out, _) = resume(&trial);
    assert_eq!(code, 0);
    assert!(out.contains("resumed; had been paused by alice: new schema for "), "{out}");
    eventually("somebody works", || workers(&trial) == 1);
    candidate.stderr.wait_for(": resumed");
    assert_eq!(resume(&trial).1, format!("{}: not paused\n", trial.name()));
}

#[test]
fn what_can_not_be_paused_is_said() {
    let trial = VVM.trial();
    assert_eq!(pause(&trial, &[]).0, 66);
    trial.run(["true"]).finish();
    let misspelt = trial.name().replace("payroll", "payrol");
    for command in ["pause", "resume"] {
        let (code, _, error) = trial.ask(command, &["--name", &misspelt]);
        assert_eq!(code, 66);
        assert!(error.contains(&format!("no candidate has ever campaigned for {misspelt} ")), "{error}");
    }
    let (code, _, error) = pause(&trial, &["--by", "alice", "--reason", &"x".repeat(250)]);
    assert_eq!(code, 64);
    assert!(error.contains("--reason: too long: at most 248 bytes beside alice"), "{error}");
    assert_eq!(pause(&trial, &["--wait", "5"]).0, 64);
    assert_eq!(pause(&trial, &["--reason", "a\nb"]).0, 64);
    assert_eq!(slots(&trial)[0]["paused_by"], Value::Null);
}

/// The pause stands, and who is named stops in the time that its command was given.
#[test]
fn who_still_holds_is_said() {
    let trial = VVM.trial();
    let script = format!(
        "cd {}; trap '' TERM; echo up; until test -e go; do sleep 0.01; done",
        trial.folder().display()
    );
    let mut leader = trial.run_script(&script).with(["--holder", "a", "--stop-timeout", "60s"]).start();
    leader.stdout.wait_for("up");
    let (code, out, error) = pause(&trial, &["--wait", "300ms"]);
    assert_eq!(code, 76, "{out}{error}");
    assert!(error.contains("a holds slot 1 (epoch ") && error.contains("The pause stands"), "{error}");
    assert_eq!(pause(&trial, &["--wait", "no"]).0, 0);
    leader.stderr.wait_for("stopping the work");
    std::fs::write(trial.folder().join("go"), "").unwrap();
    let (code, out, error) = pause(&trial, &[]);
    assert_eq!(code, 0, "{out}{error}");
}

/// Nobody takes its record over meanwhile, so that it is a matter of watching it.
#[test]
fn a_leader_that_was_killed_is_known_to_be_dead_after_its_ttl() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", trial.ttl("1s")]).start();
    leader.stdout.wait_for("up");
    kill_process(leader.host(), Signal::KILL).unwrap();
    leader.finish();
    let (code, out, error) = pause(&trial, &["--by", "alice"]);
    assert_eq!(code, 0, "{out}{error}");
    assert_eq!(slots(&trial)[0]["state"], "held");
    resume(&trial);
    assert_eq!(trial.run(["echo", "next"]).finish().stdout, ["next"]);
}

/// How often the storm is paused: whoever was killed is waited out for a TTL.
fn rounds() -> usize {
    if Trial::is_on_a_server() { 6 } else { 25 }
}

/// Five candidates for two slots, which come and go and are killed, on a storage that is of use half of the
/// time, so that claims and pauses queue up behind each other in any order. Each worker holds a lock of its
/// slot, shared with nobody but the others of that slot; once `vvm pause` has succeeded, this test must get
/// both, at once, and whoever starts a worker before `vvm resume` is caught.
#[test]
fn in_a_storm_of_candidates_nobody_works_from_pause_to_resume() {
    let trial = VVM.trial();
    let path = |name: &str| trial.folder().join(name);
    let script = format!(
        "exec flock -n -E 99 {}/lock$VVM_LEADER_SLOT sh -c 'echo >> {}; exec sleep 1000'",
        trial.folder().display(),
        path("begun").display()
    );
    let candidate = || {
        let options = ["--ttl", trial.ttl("2s"), "--slots", "2", "--exit-code-lost", "79"];
        trial.run_script(&script).with(options).start()
    };
    let begun = || std::fs::read(path("begun")).map_or(0, |begun| begun.len());
    let locks = ["lock1", "lock2"].map(|name| File::create(path(name)).unwrap());
    let mut random = fastrand::Rng::new();
    println!("seed {}", random.get_seed());
    let mut running: Vec<Running> = (0..5).map(|_| candidate()).collect();
    eventually("somebody works", || begun() > 0);

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let outage = trial.outage();
                thread::sleep(Duration::from_millis(3));
                drop(outage);
                thread::sleep(Duration::from_millis(3));
            }
        });
        // Also when an assertion fails.
        let _end = End(&over);
        for round in 0..rounds() {
            thread::sleep(Duration::from_micros(random.u64(0..60_000)));
            if random.u8(0..4) == 0 {
                let killed = running.swap_remove(random.usize(0..running.len()));
                killed.signal(if random.bool() { Signal::KILL } else { Signal::TERM });
                killed.finish();
                running.push(candidate());
            }
            let (code, out, error) = pause(&trial, &[]);
            assert_eq!(code, 0, "round {round}: {out}{error}");
            let before = begun();
            for lock in &locks {
                flock(lock, FlockOperation::NonBlockingLockExclusive)
                    .unwrap_or_else(|_| panic!("round {round}: somebody works after {out}"));
            }
            // Whoever claims now has to be held up by the check alone.
            thread::sleep(Duration::from_millis(random.u64(0..150)));
            assert_eq!(begun(), before, "round {round}: somebody has begun to work");
            for lock in &locks {
                flock(lock, FlockOperation::Unlock).unwrap();
            }
            assert_eq!(resume(&trial).0, 0);
            if round % 2 == 0 {
                eventually("somebody works again", || begun() > before);
            }
        }
    });
    // A worker that found its lock taken has ended with 99, and its run with it.
    for one in running {
        one.signal(Signal::TERM);
        let finished = one.finish();
        assert_ne!(finished.status.code(), Some(99), "{:#?}", finished.stderr);
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
