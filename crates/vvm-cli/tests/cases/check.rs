//! `--check`: a leader with an unhealthy command gives up its leadership.

use crate::VVM;
use harness::{Running, Trial, eventually, has};

/// Returns a line for `--check` that prints "looked", counts its runs, and then does `rest` with their number in `$n`.
fn counting(trial: &Trial, rest: &str) -> String {
    let file = trial.folder().join("checks");
    format!("echo looked; echo x >> '{0}'; n=$(grep -c x '{0}'); {rest}", file.display())
}

fn start(trial: &Trial, line: &str, options: &[&str]) -> Running {
    let worker = "echo up $VVM_LEADER_EPOCH; exec sleep 1000";
    let often = ["--check", line, "--check-interval", "20ms"];
    trial.run_script(worker).with(often).with(options.iter().copied()).up()
}

/// The check has the command's environment, and its output is separate from the command's.
#[test]
fn check_that_fails_three_times_in_a_row_ends_the_leadership() {
    let trial = VVM.trial();
    let line = counting(&trial, "test -n \"$VVM_LEADER_EPOCH\" && case $n in 1 | 4) ;; *) exit 7 ;; esac");
    let finished = start(&trial, &line, &["--result-file", &trial.result_file()]).finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    let found = trial.result();
    has!(found, "outcome" == "unhealthy", "exit_status" == 81);
    assert!(finished.says("failed 3 times in a row: it exited with status 7"), "{:#?}", finished.stderr);
    let looks = finished.stderr.iter().filter(|line| *line == "looked").count();
    assert_eq!(looks, 7, "{:#?}", finished.stderr);
    assert_eq!(finished.stdout.len(), 1, "{:#?}", finished.stdout);
    assert_eq!(trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 0);
}

/// Otherwise it would lead again before a standby notices the release.
#[test]
fn unhealthy_leader_campaigns_again_after_the_others() {
    let trial = VVM.trial();
    let line = counting(&trial, "test $n -gt 3");
    let mut unhealthy = start(&trial, &line, &["--on-loss", "rejoin"]);
    let mut other = trial.run_script("echo other; exec sleep 1000").start();
    other.stdout.wait_for("other");
    unhealthy.stderr.wait_for("unhealthy, the command has been stopped");
    // It defers to the other candidate before it campaigns.
    unhealthy.stderr.wait_for("waiting for leadership");
    other.stop();
    let again = unhealthy.stdout.wait_for("up");
    assert!(again.len() > "up ".len(), "{again}");
    assert_eq!(unhealthy.stop().signal(), 15);
}

/// Starts children, and does not end.
const HANGING: &str = "echo looked; trap '' TERM; sleep 1001 & sleep 1002; :";

#[test]
fn hanging_check_is_killed_with_its_children() {
    let trial = VVM.trial();
    let mut running = start(&trial, HANGING, &["--check-timeout", "300ms", "--check-failures", "1000"]);
    for _ in 0..4 {
        running.stderr.wait_for("looked");
    }
    // Those of the former checks would stay for good.
    let left = |command: &str| trial.processes().of(command).len();
    eventually("one check is left", || left("sleep 1001") <= 1 && left("sleep 1002") <= 1);
    assert_eq!(running.stop().signal(), 15);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

#[test]
fn hanging_check_fails() {
    let trial = VVM.trial();
    let finished = start(&trial, HANGING, &["--check-timeout", "100ms", "--check-failures", "2"]).finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("failed 2 times in a row: no answer within 100ms"), "{:#?}", finished.stderr);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// It ends before the leadership is released.
#[test]
fn hanging_check_ends_with_the_command() {
    let trial = VVM.trial();
    let line = "echo looked; trap '' TERM; (setsid sleep 1001 &); while :; do sleep 1002; done";
    let mut running = start(&trial, line, &["--check-timeout", "1h"]);
    running.stderr.wait_for("looked");
    assert_eq!(running.stop().signal(), 15);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}
