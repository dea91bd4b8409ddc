//! `--check`: a leader with an unhealthy command gives up its leadership.

use crate::VVM;
use harness::{Running, Trial, command_line};
use rustix::process::Signal;

/// Returns a line for `--check` that prints "looked", counts its runs, and then does `rest` with their number in `$n`.
fn counting(trial: &Trial, rest: &str) -> String {
    let file = trial.folder().join("checks");
    format!("echo looked; echo x >> '{0}'; n=$(grep -c x '{0}'); {rest}", file.display())
}

fn start(trial: &Trial, line: &str, options: &[&str]) -> Running {
    let worker = "echo up $VVM_LEADER_EPOCH; exec sleep 1000";
    let often = ["--check", line, "--check-interval", "20ms"];
    let mut running = trial.run_script(worker).with(often).with(options.iter().copied()).start();
    running.stdout.wait_for("up");
    running
}

/// The check has the command's environment, and its output is separate from the command's.
#[test]
fn check_that_fails_three_times_in_a_row_ends_the_leadership() {
    let trial = VVM.trial();
    let line = counting(&trial, "test -n \"$VVM_LEADER_EPOCH\" && case $n in 1 | 4) ;; *) exit 7 ;; esac");
    let path = trial.folder().join("result.json");
    let finished = start(&trial, &line, &["--result-file", path.to_str().unwrap()]).finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    let found: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"unhealthy".into(), &81.into()), "{found}");
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
    other.signal(Signal::TERM);
    other.finish();
    let again = unhealthy.stdout.wait_for("up");
    assert!(again.len() > "up ".len(), "{again}");
    unhealthy.signal(Signal::TERM);
    assert_eq!(unhealthy.finish().signal(), 15);
}

#[test]
fn hanging_check_fails_and_is_killed_with_its_children() {
    let trial = VVM.trial();
    let line = "echo looked; trap '' TERM; sleep 1001 & sleep 1002; :";
    let options = ["--check-timeout", "100ms", "--check-failures", "8"];
    let mut running = start(&trial, line, &options);
    for _ in 0..7 {
        running.stderr.wait_for("looked");
        let left = |command: &str| {
            let processes = trial.processes().0;
            processes.into_iter().filter(|pid| command_line(*pid).starts_with(command)).count()
        };
        assert!(left("sleep 1001") <= 1 && left("sleep 1002") <= 1, "{:?}", trial.processes().describe());
    }
    let finished = running.finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("failed 8 times in a row: no answer within 100ms"), "{:#?}", finished.stderr);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// It ends before the leadership is released.
#[test]
fn hanging_check_ends_with_the_command() {
    let trial = VVM.trial();
    let line = "echo looked; trap '' TERM; (setsid sleep 1001 &); while :; do sleep 1002; done";
    let mut running = start(&trial, line, &["--check-timeout", "1h"]);
    running.stderr.wait_for("looked");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().signal(), 15);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}
