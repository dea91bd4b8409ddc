//! The outcomes in the result file, which distinguish exit statuses of `vvm` from those of a command.

use crate::VVM;
use harness::{Level, Run, Running, Trial};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// Runs a script as the command, calls `then` once the script is up, and returns the result.
fn result_of_script(
    trial: &Trial,
    script: &str,
    options: &[&str],
    then: impl FnOnce(&Trial, &Running),
) -> Value {
    let run = trial.run_script(&format!("echo up; {script}")).with(options.iter().copied());
    let path = trial.folder().join("result.json").display().to_string();
    let mut running = run.with(["--result-file", &path]).start();
    running.stdout.wait_for("up");
    then(trial, &running);
    running.finish();
    read(&path)
}

/// Returns the result of a run that ends by itself.
fn result_of_run(trial: &Trial, run: Run) -> Value {
    let path = trial.folder().join("result.json").display().to_string();
    let finished = run.with(["--result-file", &path]).finish();
    let found = read(&path);
    assert_eq!(found["exit_status"], finished.code(), "{found}");
    assert_eq!(finished.stdout, [""; 0]);
    found
}

fn read(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Whether the result has no leadership.
fn has_no_leadership(found: &Value) -> bool {
    ["slot", "epoch", "incarnation"].iter().all(|name| found[name].is_null())
}

fn is_because(found: &Value, hint: &str) -> bool {
    found["reason"].as_str().unwrap().contains(hint)
}

#[test]
fn exited_command_has_the_outcome_worker_ended() {
    let trial = VVM.trial();
    let found = result_of_script(&trial, "exit 79", &["--holder", "here"], |_, _| {});
    assert_eq!(found["outcome"], "worker_ended");
    assert_eq!((&found["exit_status"], &found["worker_exit_status"]), (&79.into(), &79.into()));
    assert_eq!(
        (&found["name"], &found["holder"], &found["slot"]),
        (&trial.name().into(), &"here".into(), &1.into())
    );
    assert!(found["epoch"].as_u64().is_some() && found["incarnation"].as_str().is_some(), "{found}");
    assert_eq!(found["containment"], VVM.level().name());
}

#[test]
fn run_without_leadership_has_an_outcome_for_each_reason() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").start();
    leader.stdout.wait_for("up");
    let never = || trial.run(["echo", "never"]);
    let with_a_status = ["--acquire-timeout", "300ms", "--exit-code-timeout", "42"];
    for (options, status) in [(&["--acquire-timeout", "0"][..], 75), (&with_a_status, 42)] {
        let found = result_of_run(&trial, never().with(options.iter().copied()));
        assert_eq!((&found["outcome"], &found["exit_status"]), (&"not_acquired".into(), &status.into()));
        assert!(has_no_leadership(&found), "{found}");
    }
    let found = result_of_run(&trial, never().with(["--try", "--ttl", harness::SHORT_TTL]));
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"leader_seen".into(), &75.into()));

    let path = trial.folder().join("waiting.json").display().to_string();
    let mut waiting = trial.run(["true"]).with(["--result-file", &path]).start();
    waiting.stderr.wait_for("waiting for leadership");
    waiting.signal(Signal::INT);
    waiting.finish();
    let found = read(&path);
    assert_eq!((&found["outcome"], &found["signal"]), (&"stopped_while_waiting".into(), &2.into()));
    assert!(has_no_leadership(&found), "{found}");
    leader.signal(Signal::TERM);
    leader.finish();
}

#[test]
fn lost_leadership_has_the_outcome_lost() {
    let trial = VVM.trial();
    // The command has 0.15 TTL to stop, on a busy machine as well.
    let found = result_of_script(&trial, "exec sleep 1000", &["--ttl", "12s"], |trial, running| {
        let outage = trial.outage();
        running.wait();
        drop(outage);
    });
    assert_eq!(found["outcome"], "lost");
    assert_eq!((&found["exit_status"], &found["worker_signal"]), (&79.into(), &15.into()));
    assert!(found["reason"].as_str().unwrap().contains("no renewal"), "{found}");
}

#[test]
fn failed_check_has_the_outcome_unhealthy() {
    let trial = VVM.trial();
    let check = ["--check", "false", "--check-interval", "20ms", "--check-failures", "1"];
    let found = result_of_script(&trial, "exec sleep 1000", &check, |_, _| {});
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"unhealthy".into(), &81.into()));
    assert!(found["reason"].as_str().unwrap().contains("failed once"), "{found}");
}

#[test]
fn refused_run_has_an_outcome_for_each_reason() {
    let trial = VVM.trial();
    // A file in a missing folder, or a server without the keyspace or table.
    let (missing, hint) = trial.storage_that_was_never_made();
    let found = result_of_run(&trial, trial.run(["true"]).with(["--storage", &missing]));
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"storage_refused".into(), &69.into()));
    assert!(has_no_leadership(&found) && is_because(&found, hint), "{found}");
    let found = result_of_run(&trial, trial.run(["true"]).with(["--ttl", "100ms"]));
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"misuse".into(), &64.into()));
    trial.run(["true"]).with(["--slots", "2"]).finish();
    let found = result_of_run(&trial, trial.run(["true"]).with(["--slots", "3"]));
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"conflict".into(), &78.into()));
    assert!(is_because(&found, "has 2 slots in this storage, not 3"), "{found}");
}

#[test]
fn missing_or_unexecutable_command_has_its_own_outcome_and_frees_the_slot() {
    let trial = VVM.trial();
    for (command, outcome, status, said) in [
        ("no-such-command", "command_not_found", 127, "can't run no-such-command"),
        ("/etc/passwd", "command_not_executable", 126, "can't run /etc/passwd: Permission denied"),
    ] {
        let found = result_of_run(&trial, trial.run([command]).with(["--acquire-timeout", "0"]));
        assert_eq!((&found["outcome"], &found["exit_status"]), (&outcome.into(), &status.into()));
        assert!(found["reason"].as_str().unwrap().contains(said), "{found}");
        let (_, history, _) = trial.ask("history", &["--name", &trial.name()]);
        assert!(history.contains(&format!("command not started: {said}")), "{history}");
        // The run led, although its command did not start.
        assert!(!has_no_leadership(&found), "{found}");
    }
    // A worker that exits with 127 is not an error of vvm.
    let found = result_of_script(&trial, "exit 127", &["--acquire-timeout", "0"], |_, _| {});
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"worker_ended".into(), &127.into()));
}

/// The guardian writes the result after the death of the host.
#[test]
fn killed_host_has_the_outcome_host_died() {
    let trial = VVM.trial();
    let found = result_of_script(&trial, "exec sleep 1000", &[], |_, running| {
        kill_process(running.host(), Signal::KILL).unwrap();
    });
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"host_died".into(), &137.into()));
    assert!(found["epoch"].as_u64().is_some() && found["incarnation"].as_str().is_some(), "{found}");
}

/// Without the keeper, nothing proves to the host that the command has ended.
#[test]
fn killed_keeper_has_the_outcome_keeper_died() {
    if VVM.level() == Level::PidNamespace {
        // There the kernel proves the end (`killed_process_1_of_the_namespace_counts_as_a_killed_worker`).
        return;
    }
    let trial = VVM.trial();
    let found = result_of_script(&trial, "exec sleep 1000", &[], |trial, _| {
        kill_process(trial.process("vvm stage-keeper"), Signal::KILL).unwrap();
    });
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"keeper_died".into(), &71.into()));
    assert!(found["epoch"].as_u64().is_some(), "{found}");
}

#[test]
fn stopped_host_has_the_outcome_deadline() {
    let trial = VVM.trial();
    let ttl = ["--ttl", harness::SHORT_TTL];
    let found = result_of_script(&trial, "exec sleep 1000", &ttl, |_, running| {
        kill_process(running.host(), Signal::STOP).unwrap();
    });
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"deadline".into(), &137.into()));
    assert!(found["host_ended_ns"].as_u64() >= found["kill_deadline_ns"].as_u64(), "{found}");
}
