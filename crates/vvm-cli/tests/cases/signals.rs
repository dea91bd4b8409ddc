//! Signals: forwarded ones, stop requests, and repeated stop requests. `--pre-stop` runs before the command is
//! signalled, in the command's containment, and ends within the lease.

use crate::VVM;
use harness::{Finished, Run, Running, Trial, eventually, has_ended};
use rustix::process::{Signal, kill_process};
use std::time::Duration;

/// Longer than the time within which a second signal counts as an echo of the first.
const NOT_AN_ECHO: Duration = Duration::from_millis(150);

#[test]
fn process_group_of_the_worker_gets_forwarded_signals() {
    let trial = VVM.trial();
    let script = "trap 'echo parent' USR1; sh -c \"trap 'echo child; exit' USR1; echo up; while :; do sleep \
        0.01; done\" & wait; wait";
    // On a terminal, the worker's group is that of the caller.
    let mut running = trial.run_script(script).through(["setsid"]).start();
    running.stdout.wait_for("up");
    running.signal(Signal::USR1);
    running.wait();
    let mut said = running.finish().stdout;
    said.sort();
    assert_eq!(said, ["child", "parent", "up"]);
}

#[test]
fn renewals_continue_while_the_worker_stops() {
    let trial = VVM.trial();
    let ttl = harness::SHORT_TTL;
    // It takes longer to stop than its TTL.
    let worker = "trap 'sleep 10; echo stopped; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = trial.run_script(worker).with(["--ttl", ttl, "--stop-timeout", "20s"]).start();
    running.stdout.wait_for("up");
    let standby = trial.run(["true"]).with(["--ttl", ttl]).start();
    running.signal(Signal::TERM);
    running.stdout.wait_for("stopped");
    let finished = running.finish();
    assert_eq!(finished.code(), 0, "{:#?}", finished.stderr);
    assert_eq!(standby.finish().code(), 0);
}

/// A service manager signals every process of a unit at once.
#[test]
fn signal_to_all_vvm_processes_is_one_stop_request() {
    let trial = VVM.trial();
    let worker = "trap 'sleep 0.3; exit 6' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = trial.run_script(worker).start();
    running.stdout.wait_for("up");
    let host = running.host();
    kill_process(host, Signal::TERM).unwrap();
    std::thread::sleep(NOT_AN_ECHO);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code(), 6);
}

/// The command gets the signal first and exits before the host handles its own.
#[test]
fn worker_that_exits_before_the_host_sees_the_signal_counts_as_stopped() {
    let trial = VVM.trial();
    let mut running = trial.run_script("echo up; exec sleep 1000").start();
    running.stdout.wait_for("up");
    kill_process(trial.process("sleep"), Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    running.signal(Signal::TERM);
    assert_eq!(running.finish().signal(), 15);
}

/// The parent of `vvm` has blocked its signals, and nothing else wakes a process: the first renewal follows
/// after 15 minutes.
#[test]
fn blocked_signals_are_unblocked_where_they_are_caught() {
    let trial = VVM.trial();
    let blocking = ["env", "--block-signal=CHLD", "--block-signal=TERM"];
    let run = |script: &str| trial.run_script(script).with(["--ttl", "1h"]).through(blocking).start();
    let ends = run("exit 3");
    eventually("vvm has ended with its command", || has_ended(ends.guardian));
    assert_eq!(ends.finish().code(), 3);
    let mut stopped = run("echo up; exec sleep 1000");
    stopped.stdout.wait_for("up");
    stopped.signal(Signal::TERM);
    eventually("vvm has ended", || has_ended(stopped.guardian));
    assert_eq!(stopped.finish().signal(), 15);
}

#[test]
fn suspended_worker_is_continued_to_handle_the_stop_signal() {
    let trial = VVM.trial();
    let worker = "trap 'exit 8' TERM; echo up; kill -STOP $$; while :; do sleep 0.01; done";
    let mut running = trial.run_script(worker).start();
    running.stdout.wait_for("up");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code(), 8);
}

/// Returns the notes of the command and of pre-stop, in order.
fn notes(trial: &Trial) -> Vec<String> {
    let text = std::fs::read_to_string(trial.folder().join("notes")).unwrap_or_default();
    text.lines().map(String::from).collect()
}

/// Starts a command that notes TERM and exits with status 5, with this `pre_stop`. Both write to `$NOTES`.
fn with_pre_stop(trial: &Trial, pre_stop: &str) -> Run {
    let worker =
        "trap 'echo told >> $NOTES; exit 5' TERM; trap 'echo HUP' HUP; echo up; while :; do sleep 0.01; done";
    let notes = trial.folder().join("notes").display().to_string();
    trial.run_script(worker).with(["--pre-stop", pre_stop]).environment("NOTES", &notes)
}

fn up(run: Run) -> Running {
    let mut running = run.start();
    running.stdout.wait_for("up");
    running
}

fn ended(trial: &Trial, running: Running) -> Finished {
    let finished = running.finish();
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
    finished
}

#[test]
fn pre_stop_ends_before_the_command_is_signalled() {
    let trial = VVM.trial();
    let running =
        up(with_pre_stop(&trial, "sleep 0.3; echo pre $VVM_LEADER_NAME >> $NOTES; echo heard; exit 1"));
    running.signal(Signal::TERM);
    let finished = ended(&trial, running);
    assert_eq!(finished.code(), 5, "{:#?}", finished.stderr);
    assert_eq!(notes(&trial), [format!("pre {}", trial.name()), "told".into()]);
    // Standard output is the command's.
    assert!(
        finished.says("heard") && finished.says("--pre-stop exited with status 1"),
        "{:#?}",
        finished.stderr
    );
    assert_eq!(finished.stdout, ["up"]);
}

#[test]
fn hanging_pre_stop_is_killed_with_its_children() {
    let trial = VVM.trial();
    let hangs = "trap '' TERM; sleep 1000 & (setsid sleep 1000 &); sleep 1000";
    let running = up(with_pre_stop(&trial, hangs).with(["--pre-stop-timeout", "100ms"]));
    running.signal(Signal::TERM);
    let finished = ended(&trial, running);
    assert_eq!(finished.code(), 5, "{:#?}", finished.stderr);
    assert!(finished.says("--pre-stop took longer than it may"), "{:#?}", finished.stderr);
    assert_eq!(notes(&trial), ["told"]);
}

/// The exit status shows that nothing was killed at the deadline.
#[test]
fn pre_stop_after_a_loss_leaves_time_for_the_command_to_stop() {
    let trial = VVM.trial();
    let hangs = "trap '' TERM; echo pre >> $NOTES; while :; do sleep 1000; done";
    let running = up(with_pre_stop(&trial, hangs).with(["--pre-stop-timeout", "1h", "--ttl", "10s"]));
    let outage = trial.outage();
    running.wait();
    drop(outage);
    let finished = ended(&trial, running);
    assert_eq!(finished.code(), 79, "{:#?}", finished.stderr);
    assert_eq!(notes(&trial), ["pre", "told"]);
}

#[test]
fn pre_stop_does_not_run_if_the_command_exits_by_itself() {
    let trial = VVM.trial();
    let notes_file = trial.folder().join("notes").display().to_string();
    let run =
        trial.run(["true"]).with(["--pre-stop", "echo pre >> $NOTES"]).environment("NOTES", &notes_file);
    assert_eq!(run.finish().code(), 0);
    assert_eq!(notes(&trial), Vec::<String>::new());
}
