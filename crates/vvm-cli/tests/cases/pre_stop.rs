//! `--pre-stop` runs before the command is signalled, in the command's containment, and ends within the
//! lease.

use crate::VVM;
use harness::{Finished, Run, Running, Trial, eventually};
use rustix::process::Signal;
use std::time::Duration;

/// Longer than the time within which a second signal counts as an echo of the first.
const NOT_AN_ECHO: Duration = Duration::from_millis(150);

/// Returns the notes of the command and of pre-stop, in order.
fn notes(trial: &Trial) -> Vec<String> {
    let text = std::fs::read_to_string(trial.folder().join("notes")).unwrap_or_default();
    text.lines().map(String::from).collect()
}

/// Starts a command that notes TERM and exits with status 5, with this `pre_stop`. Both write to `$NOTES`.
fn run(trial: &Trial, pre_stop: &str) -> Run {
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
    let running = up(run(&trial, "sleep 0.3; echo pre $VVM_LEADER_NAME >> $NOTES; echo heard; exit 1"));
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
    let running = up(run(&trial, hangs).with(["--pre-stop-timeout", "100ms"]));
    running.signal(Signal::TERM);
    let finished = ended(&trial, running);
    assert_eq!(finished.code(), 5, "{:#?}", finished.stderr);
    assert!(finished.says("--pre-stop took longer than it may"), "{:#?}", finished.stderr);
    assert_eq!(notes(&trial), ["told"]);
}

#[test]
fn second_request_kills_hook_and_command_and_other_signals_are_forwarded() {
    let trial = VVM.trial();
    let mut running = up(run(&trial, "echo pre >> $NOTES; sleep 1000; :").with(["--pre-stop-timeout", "1h"]));
    running.signal(Signal::TERM);
    eventually("it runs", || !notes(&trial).is_empty());
    running.signal(Signal::HUP);
    running.stdout.wait_for("HUP");
    std::thread::sleep(NOT_AN_ECHO);
    running.signal(Signal::INT);
    assert_eq!(ended(&trial, running).code(), 128 + 9);
    assert_eq!(notes(&trial), ["pre"]);
}

/// The exit status shows that nothing was killed at the deadline.
#[test]
fn pre_stop_after_a_loss_leaves_time_for_the_command_to_stop() {
    let trial = VVM.trial();
    let hangs = "trap '' TERM; echo pre >> $NOTES; while :; do sleep 1000; done";
    let running = up(run(&trial, hangs).with(["--pre-stop-timeout", "1h", "--ttl", "5s"]));
    let outage = trial.outage();
    running.wait();
    drop(outage);
    let finished = ended(&trial, running);
    assert_eq!(finished.code(), 79, "{:#?}", finished.stderr);
    assert_eq!(notes(&trial), ["pre", "told"]);
}

#[test]
fn pre_stop_runs_after_a_failed_check() {
    let trial = VVM.trial();
    let check = ["--check", "false", "--check-interval", "20ms", "--check-failures", "2"];
    let finished = ended(&trial, up(run(&trial, "echo pre >> $NOTES").with(check)));
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("the check `false` failed 2 times in a row: it exited with status 1"));
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
