//! Signals: forwarded ones, stop requests, and repeated stop requests. `--pre-stop` runs before the command is
//! signalled, in the command's containment, and ends within the lease.

use crate::VVM;
use harness::{Finished, Run, Running, Trial, eventually, has_ended};
use rustix::process::{Signal, kill_process};
use std::time::Duration;
use vvm_containment::signal_named;

/// Longer than the time within which a second signal counts as an echo of the first.
const NOT_AN_ECHO: Duration = Duration::from_millis(150);

#[test]
fn process_group_of_the_worker_gets_forwarded_signals() {
    let trial = VVM.trial();
    let script = "trap 'echo parent' USR1; sh -c \"trap 'echo child; exit' USR1; echo up; while :; do sleep \
        0.01; done\" & wait; wait";
    // On a terminal, the worker's group is that of the caller.
    let running = trial.run_script(script).through(["setsid"]).up();
    running.signal(Signal::USR1);
    running.wait();
    let mut said = running.finish().stdout;
    said.sort();
    assert_eq!(said, ["child", "parent", "up"]);
}

/// A service manager signals every process of a unit at once.
#[test]
fn signal_to_all_vvm_processes_is_one_stop_request() {
    let trial = VVM.trial();
    let running = trial.run_trapping("sleep 0.3; exit 6").up();
    let host = running.host();
    kill_process(host, Signal::TERM).unwrap();
    std::thread::sleep(NOT_AN_ECHO);
    assert_eq!(running.stop().code(), 6);
}

/// The command gets the signal first and exits before the host handles its own.
#[test]
fn worker_that_exits_before_the_host_sees_the_signal_counts_as_stopped() {
    let trial = VVM.trial();
    let running = trial.run_forever().up();
    kill_process(trial.process("sleep"), Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(running.stop().signal(), 15);
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
    let running = trial.run_script(worker).up();
    assert_eq!(running.stop().code(), 8);
}

/// A server that quits in good order at its own signal is not started again.
#[test]
fn command_is_stopped_by_its_own_signal_and_not_restarted() {
    let ask = |trial: &Trial, running: &Running, by: &str| match by {
        "step-down" => drop(trial.must("pause", &["--wait", "no"])),
        by => running.signal(signal_named(by).unwrap()),
    };
    for (own, by) in [("QUIT", "QUIT"), ("WINCH", "WINCH"), ("SIGRTMIN+3", "TERM"), ("12", "step-down")] {
        let trial = VVM.trial();
        let number = signal_named(own).unwrap().as_raw();
        let script =
            format!("trap 'echo in good order; exit 0' {number}; echo up; while :; do sleep 0.01; done");
        let options = ["--stop-signal", own, "--on-exit", "restart", "--restart-backoff", "100ms"];
        let mut running = trial.run_script(&script).with(options).up();
        ask(&trial, &running, by);
        running.stdout.wait_for("in good order");
        if by == "step-down" {
            running.stderr.wait_for("released: ");
            assert_eq!(running.stop().signal(), Signal::TERM.as_raw());
            continue;
        }
        let finished = running.finish();
        assert!(finished.says("stopped: the command exited with status 0"), "{by}: {:#?}", finished.stderr);
        assert_eq!((finished.code(), finished.stdout.len()), (0, 2), "{by}: {:#?}", finished.stdout);
    }
    let finished = VVM.trial().run(["true"]).with(["--stop-signal", "KILL"]).finish();
    assert_eq!(finished.code(), 64, "{:#?}", finished.stderr);
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

fn ended(trial: &Trial, running: Running) -> Finished {
    let finished = running.finish();
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
    finished
}

#[test]
fn pre_stop_ends_before_the_command_is_signalled() {
    let trial = VVM.trial();
    let running =
        with_pre_stop(&trial, "sleep 0.3; echo pre $VVM_LEADER_NAME >> $NOTES; echo heard; exit 1").up();
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
    let running = with_pre_stop(&trial, hangs).with(["--pre-stop-timeout", "100ms"]).up();
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
    let running = with_pre_stop(&trial, hangs).with(["--pre-stop-timeout", "1h", "--ttl", "10s"]).up();
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
