//! Signals: forwarded ones, stop requests, and repeated stop requests.

use crate::VVM;
use harness::{eventually, has_ended};
use rustix::process::{Signal, kill_process};
use std::time::Duration;

/// Longer than the time within which a second signal counts as an echo of the first.
const NOT_AN_ECHO: Duration = Duration::from_millis(150);

#[test]
fn process_group_of_the_worker_gets_forwarded_signals() {
    let trial = VVM.trial();
    let script = "trap 'echo parent' USR1; sh -c \"trap 'echo child; exit' USR1; echo up; while :; do sleep \
        0.01; done\" & wait; wait";
    let mut running = trial.run_script(script).start();
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

/// `timeout` signals the process first, and then its group.
#[test]
fn timeout_command_stops_the_worker_and_does_not_kill_it() {
    let trial = VVM.trial();
    let worker = "trap 'sleep 0.3; exit 6' TERM; while :; do sleep 0.01; done";
    let finished = trial.run_script(worker).through(["timeout", "--preserve-status", "1"]).finish();
    assert_eq!(finished.code(), 6, "{:#?}", finished.stderr);
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

/// A hangup ends `consul lock`, and its command lives on.
#[test]
fn hangup_or_quit_leaves_no_orphan() {
    for signal in [Signal::HUP, Signal::QUIT] {
        let trial = VVM.trial();
        // A daemon that ignores both signals, in its own session.
        let script =
            "setsid sh -c 'trap \"\" HUP QUIT; echo up; while :; do sleep 0.1; done' & sleep 1000; true";
        let mut running = trial.run_script(script).with(["--stop-timeout", "200ms"]).start();
        running.stdout.wait_for("up");
        running.signal(signal);
        assert_eq!(running.finish().code(), 128 + signal.as_raw());
        assert_eq!(trial.processes().0, []);
    }
}
