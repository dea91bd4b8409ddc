//! `--on-loss rejoin` through storage outages of random length, `--slots` through kills, and a host that hangs without
//! being stopped: its own thread ends it at the deadline and logs it.

use crate::VVM;
use harness::{Attempt, Late, Run, Running, Trial, eventually, has, state};
use nix::sys::ptrace;
use rustix::process::{Signal, kill_process};
use std::{fs, thread, time::Duration};
use vvm_clock::Instant;
use vvm_deadman::SECOND_LAYER_BEHIND;

/// A command that writes its epoch while it holds the lock of its slot. It fails if another one has the lock.
fn worker(trial: &Trial, options: &[&str]) -> Run {
    let at = trial.folder().join("slot").display().to_string();
    let script = format!(
        "at={at}.$VVM_LEADER_SLOT
         flock -n -E 99 $at sh -c 'echo $VVM_LEADER_EPOCH >> $0.epochs; \
         echo up $VVM_LEADER_SLOT; exec sleep 1005' $at
         [ $? = 99 ] && echo OVERLAP"
    );
    trial.run_script(&script).with(options.iter().copied())
}

fn epochs(trial: &Trial, slot: u32) -> Vec<u64> {
    let text = fs::read_to_string(trial.folder().join(format!("slot.{slot}.epochs"))).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn at_work(trial: &Trial) -> usize {
    trial.processes().of("sleep 1005").len()
}

fn check(trial: &Trial, slot: u32, outputs: &[Vec<String>]) {
    let epochs = epochs(trial, slot);
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "slot {slot}: {epochs:?}");
    assert!(!outputs.iter().flatten().any(|line| line == "OVERLAP"), "{outputs:#?}");
}

/// With this TTL, a renewal is due after 1 s and a loss comes after 2.6 s.
fn outages(seed: u64) {
    let trial = VVM.trial();
    let options = ["--ttl", harness::SHORT_TTL, "--on-loss", "rejoin", "--stop-timeout", "10s"];
    let mut all = (0..3).map(|_| worker(&trial, &options).start()).collect::<Vec<_>>();
    eventually("a command works", || at_work(&trial) == 1);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut between = |least: u64, most: u64| Duration::from_millis(random.u64(least..most));
    for outage in 0..6 {
        let lasting = trial.outage();
        let length = if outage % 3 == 0 { between(50, 900) } else { between(900, 6000) };
        let ends_at = vvm_clock::SystemClock::read().after(length);
        while vvm_clock::SystemClock::read() < ends_at {
            assert!(at_work(&trial) <= 1, "seed {seed}: {:?}", trial.processes().describe());
            thread::sleep(Duration::from_millis(20));
        }
        drop(lasting);
        if outage % 2 == 0 {
            eventually("a command works", || at_work(&trial) == 1);
        }
        thread::sleep(between(0, 1000));
    }
    eventually("a command works", || at_work(&trial) == 1);
    let leaderships = epochs(&trial, 1).len();
    println!("seed {seed}: {leaderships} leaderships through 6 outages");
    assert!(leaderships > 1, "seed {seed}: {leaderships}");
    let mut outputs = Vec::new();
    while !all.is_empty() {
        let before = epochs(&trial, 1).len();
        eventually("a command works", || at_work(&trial) == 1);
        let finished = all.remove(leader_of(&trial, 1, &all)).stop();
        assert_eq!(finished.signal(), 15, "seed {seed}: {:#?}", finished.stderr);
        outputs.push(finished.stdout);
        if !all.is_empty() {
            eventually("the next one works", || epochs(&trial, 1).len() > before && at_work(&trial) == 1);
        }
    }
    check(&trial, 1, &outputs);
}

fn leader_of(trial: &Trial, slot: usize, all: &[Running]) -> usize {
    let mut found = None;
    eventually("one of them leads", || {
        let holder = trial.slots()[slot - 1]["holder"].as_str().unwrap_or_default().to_owned();
        found = all.iter().position(|one| holder.ends_with(&format!(":{}", one.guardian)));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn one_leader_and_all_candidates_survive_outages_of_any_length() {
    let seeds = std::env::var("VVM_TEST_SEEDS").unwrap_or_else(|_| "1".into());
    for seed in seeds.split(' ') {
        outages(seed.parse().unwrap());
    }
}

#[test]
fn each_slot_has_one_leader_and_a_killed_leader_is_replaced() {
    let trial = VVM.trial();
    let options = ["--ttl", harness::SHORT_TTL, "--slots", "3", "--on-loss", "rejoin"];
    let mut all = (0..5).map(|_| worker(&trial, &options).start()).collect::<Vec<_>>();
    let of_all = || (1..=3).map(|slot| epochs(&trial, slot).len()).collect::<Vec<_>>();
    let never_more = |what: &str, condition: &dyn Fn() -> bool| {
        eventually(what, || {
            assert!(at_work(&trial) <= 3, "{:?}", trial.processes().describe());
            condition()
        });
    };
    never_more("three work", &|| at_work(&trial) == 3 && !of_all().contains(&0));
    let mut outputs = Vec::new();
    for round in 0..6_usize {
        let slot = round % 3;
        let leader = all.remove(leader_of(&trial, slot + 1, &all));
        let before = of_all();
        match round % 3 {
            0 => leader.signal(Signal::KILL),
            1 => kill_process(leader.host(), Signal::KILL).unwrap(),
            _ => leader.signal(Signal::TERM),
        }
        outputs.push(leader.finish().stdout);
        all.push(worker(&trial, &options).start());
        never_more("it is replaced", &|| at_work(&trial) == 3 && of_all()[slot] > before[slot]);
    }
    all.iter().for_each(|one| one.signal(Signal::TERM));
    outputs.extend(all.into_iter().map(|one| one.finish().stdout));
    (1..=3).for_each(|slot| check(&trial, slot, &outputs));
}

/// The kernel's timer is [`SECOND_LAYER_BEHIND`] behind the host's own thread, which acts before it unless
/// the machine keeps it waiting for that long.
fn hung_host_is_ended_by_its_own_thread(attempt: &Attempt, trial: &Trial) -> Result<(), Late> {
    let options = ["--ttl", harness::SHORT_TTL, "--result-file", &trial.result_file()];
    let worker = "trap '' TERM; (setsid sleep 1000 &); echo up; exec sleep 1001";
    let running = trial.run_script(worker).with(options).up();
    let host = running.host();
    let traced = nix::unistd::Pid::from_raw(host.as_raw_pid());
    let tracer = thread::spawn(move || {
        ptrace::seize(traced, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(traced).unwrap();
        eventually("the host has ended", || matches!(state(host), Some('Z') | None));
    });
    // The parent can reap the host after the tracer's thread has ended.
    tracer.join().unwrap();
    eventually("no process is left", || trial.processes().0.is_empty());
    let finished = running.finish();
    let code = finished.code();
    assert!([80, 128 + 9].contains(&code), "{code}: {:#?}", finished.stderr);
    finished.assert_says("killed at the deadline");
    let found = trial.result();
    has!(found, "outcome" == "deadline", "exit_status" == code);
    assert!(found["host_ended_ns"].as_u64() >= found["kill_deadline_ns"].as_u64(), "{found}");
    if code == 128 + 9 {
        let moment = |name: &str| Instant::from_nanos(found[name].as_u64().unwrap());
        let (deadline, ended) = (moment("kill_deadline_ns"), moment("host_ended_ns"));
        attempt.reported("the host's own thread", SECOND_LAYER_BEHIND, ended.since(deadline), deadline)?;
        panic!("the kernel ended the host before its own thread was late: {found}");
    }
    Ok(())
}

mod timed {
    use super::*;

    /// The main thread is held as by a debugger: it renews nothing and handles no signal. The deadline's thread runs.
    #[test]
    fn hung_host_ends_with_80_at_the_deadline_and_leaves_no_process() {
        VVM.timed("a host hangs", hung_host_is_ended_by_its_own_thread);
    }
}
