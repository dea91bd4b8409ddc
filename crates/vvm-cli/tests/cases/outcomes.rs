//! What happens after the command ends by itself: release or restart. Every exit status that the help promises,
//! and the outcomes in the result file, which distinguish exit statuses of `vvm` from those of a command.

use crate::VVM;
use harness::{Run, Trial, has};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

fn result_of_run(trial: &Trial, run: Run) -> Value {
    let finished = run.with(["--result-file", &trial.result_file()]).finish();
    let found = trial.result();
    assert_eq!(found["exit_status"], finished.code(), "{found}");
    assert_eq!(finished.stdout, [""; 0]);
    found
}

fn has_no_leadership(found: &Value) -> bool {
    ["slot", "epoch", "incarnation"].iter().all(|name| found[name].is_null())
}

fn is_because(found: &Value, hint: &str) -> bool {
    found["reason"].as_str().unwrap().contains(hint)
}

/// 127 of a command is no error of `vvm`.
#[test]
fn exited_command_has_the_outcome_worker_ended() {
    for status in [79, 127] {
        let trial = VVM.trial();
        let run = trial.run_script(&format!("exit {status}")).with(["--holder", "here"]);
        let found = result_of_run(&trial, run);
        has!(found, "outcome" == "worker_ended", "exit_status" == status, "worker_exit_status" == status);
        has!(found, "name" == trial.name(), "holder" == "here", "slot" == 1);
        assert!(found["epoch"].as_u64().is_some() && found["incarnation"].as_str().is_some(), "{found}");
        assert_eq!(found["containment"], VVM.level().name());
    }
}

#[test]
fn run_without_leadership_has_an_outcome_for_each_reason() {
    let trial = VVM.trial();
    let leader = trial.run_forever().up();
    let never = || trial.run(["echo", "never"]);
    for timeout in ["0", "300ms"] {
        let found = result_of_run(&trial, never().with(["--acquire-timeout", timeout]));
        has!(found, "outcome" == "not_acquired", "exit_status" == 75);
        assert!(has_no_leadership(&found), "{found}");
    }
    let found = result_of_run(&trial, never().with(["--try", "--ttl", harness::SHORT_TTL]));
    has!(found, "outcome" == "leader_seen", "exit_status" == 75);

    let waiting = trial.run(["true"]).with(["--result-file", &trial.result_file()]).waiting();
    waiting.signal(Signal::INT);
    waiting.finish();
    let found = trial.result();
    has!(found, "outcome" == "stopped_while_waiting", "signal" == 2);
    assert!(has_no_leadership(&found), "{found}");
    leader.stop();
}

#[test]
fn refused_run_has_an_outcome_for_each_reason() {
    let trial = VVM.trial();
    let (missing, hint) = trial.storage_that_was_never_made();
    let found = result_of_run(&trial, trial.run(["true"]).with(["--storage", &missing]));
    has!(found, "outcome" == "storage_refused", "exit_status" == 69);
    assert!(has_no_leadership(&found) && is_because(&found, hint), "{found}");
    let found = result_of_run(&trial, trial.run(["true"]).with(["--ttl", "100ms"]));
    has!(found, "outcome" == "misuse", "exit_status" == 64);
    assert!(is_because(&found, trial.shortest_ttl()), "{found}");
    trial.run(["true"]).with(["--slots", "2"]).finish();
    let found = result_of_run(&trial, trial.run(["true"]).with(["--slots", "3"]));
    has!(found, "outcome" == "conflict", "exit_status" == 78);
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
        has!(found, "outcome" == outcome, "exit_status" == status);
        assert!(found["reason"].as_str().unwrap().contains(said), "{found}");
        let history = trial.must("history", &[]);
        assert!(history.contains(&format!("command not started: {said}")), "{history}");
        // The run led, although its command did not start.
        assert!(!has_no_leadership(&found), "{found}");
    }
}

#[test]
fn status_of_a_worker_killed_by_a_signal_from_outside() {
    let trial = VVM.trial();
    for (signal, number) in [("SEGV", 11), ("TERM", 15), ("KILL", 9)] {
        trial.run_script(&format!("kill -{signal} $$")).finish().assert_code(128 + number);
    }
}

/// `--try` must not mistake the record of a dead leader for a leader, or a job would never run again after a crash.
#[test]
fn try_takes_over_from_a_crashed_leader() {
    let trial = VVM.trial();
    let ttl = harness::SHORT_TTL;
    let leader = trial.run_forever().with(["--ttl", ttl]).up();
    leader.signal(Signal::KILL);
    leader.finish();
    let finished = trial.run(["echo", "took over"]).with(["--ttl", ttl, "--try"]).finish();
    finished.assert_code(0);
    assert_eq!(finished.stdout, ["took over"]);
}

/// The host outlives the worker, so it can log the reason.
#[test]
fn worker_that_ignores_term_is_killed_before_the_deadline_of_a_loss() {
    let trial = VVM.trial();
    let running = trial.run_trapping("").with(["--ttl", "4s"]).up();
    trial.take_away();
    running.finish().assert_code(79);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

#[test]
fn lost_leadership_is_79_after_the_worker_stopped() {
    let trial = VVM.trial();
    let options = ["--ttl", harness::SHORT_TTL, "--result-file", &trial.result_file()];
    let mut running = trial.run_trapping("echo told; exit 0").with(options).up();
    trial.take_away();
    running.stdout.wait_for("told");
    let finished = running.finish();
    has!(trial.result(), "outcome" == "lost", "exit_status" == 79, "worker_exit_status" == 0);
    finished.assert_ended(79, "leadership lost, the command has been stopped");
}

const SOON: [&str; 4] = ["--on-exit", "restart", "--restart-backoff", "20ms"];

#[test]
fn restart_follows_the_end_of_every_process_of_the_run_before() {
    let trial = VVM.trial();
    let lock = trial.folder().join("lock").display().to_string();
    let daemon = "trap \"\" TERM; echo > \"$0.up\"; sleep 1000; :";
    let script = format!(
        "lock='{lock}'; flock -n \"$lock\" true && echo clean || echo left
         rm -f \"$lock.up\"; setsid flock \"$lock\" sh -c '{daemon}' \"$lock\" & \
         until [ -e \"$lock.up\" ]; do sleep 0.01; done"
    );
    let options = ["--restart-limit", "2", "--stop-timeout", "50ms"];
    let finished = trial.run_script(&script).with(SOON).with(options).finish();
    finished.assert_code(0);
    assert_eq!(finished.stdout, ["clean"; 3]);
}

#[test]
fn command_deleted_before_its_restart_is_127() {
    let trial = VVM.trial();
    let program = trial.folder().join("once");
    std::fs::write(&program, format!("#!/bin/sh\nrm '{}'\n", program.display())).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    trial.run([program.to_str().unwrap()]).with(SOON).finish().assert_code(127);
    trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().assert_code(0);
}

#[test]
fn loss_between_two_runs_has_the_status_of_a_loss() {
    let trial = VVM.trial();
    let options = ["--on-exit", "restart", "--restart-backoff", "1h", "--restart-backoff-max", "1h"];
    let mut running = trial.run_script("exit 3").with(options).with(["--ttl", harness::SHORT_TTL]).start();
    running.stderr.wait_for("restart 1");
    let outage = trial.outage();
    running.wait();
    drop(outage);
    running.finish().assert_code(79);
}

mod timed {
    use super::*;

    #[test]
    fn try_on_an_unreachable_storage_is_75_in_bounded_time() {
        VVM.timed("a try on an unreachable storage", |attempt, trial| {
            let obstruction = trial.obstruct();
            let began = vvm_clock::SystemClock::read();
            let options = ["--try", "--ttl", harness::SHORT_TTL, "--storage", &obstruction.url];
            let finished = trial.run(["echo", "never"]).with(options).finish();
            // 1.4 TTL, and the longest attempt to open.
            attempt.took("the try", Duration::from_secs(15), began)?;
            finished.assert_code(75);
            assert_eq!(finished.stdout, [""; 0]);
            obstruction.remove();
            Ok(())
        });
    }
}

/// A thread finds a server's address. The limit counts all processes of a user, so this one has no others.
#[cfg(feature = "etcd")]
#[test]
fn too_low_thread_limit_ends_no_host_by_a_panic() {
    const USER: [&str; 4] = ["setpriv", "--reuid=1234567", "--regid=1234567", "--clear-groups"];
    if !rustix::process::geteuid().is_root() {
        return println!("not tested: another user's limits need root");
    }
    let trial = VVM.trial();
    let copy = format!("shift; exec '{}' \"$@\"", trial.folder().join("vvm").display());
    let is_tried = (4..40).any(|most| {
        let limit = format!("--nproc={most}");
        let limited = ["prlimit", &limit].into_iter().chain(USER).chain(["sh", "-c", &copy, "sh"]);
        let run = trial.run(["true"]).with(["--storage", "etcd://localhost:1/x", "--acquire-timeout", "0"]);
        let run = run.without(["--containment"]).with(["--containment", "guardian"]);
        let finished = run.as_ordinary_user(&trial).through(limited).finish();
        assert!(!finished.says("the host process died"), "{most}: {:#?}", finished.stderr);
        finished.says("no etcd answers")
    });
    assert!(is_tried);
}
