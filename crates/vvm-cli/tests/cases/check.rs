use crate::VVM;
use harness::{Running, Trial, eventually, has};

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
    finished.assert_code(81);
    has!(trial.result(), "outcome" == "unhealthy", "exit_status" == 81);
    finished.assert_says("failed 3 times in a row: it exited with status 7");
    let looks = finished.stderr.iter().filter(|line| *line == "looked").count();
    assert_eq!((looks, finished.stdout.len()), (7, 1), "{:#?}", finished.stderr);
    trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().assert_code(0);
}

/// Otherwise it would lead again before a standby notices the release.
#[test]
fn unhealthy_leader_campaigns_again_after_the_others() {
    let trial = VVM.trial();
    let line = counting(&trial, "test $n -gt 3");
    let polls = ["--local-dir", "none"];
    let mut unhealthy = start(&trial, &line, &[&polls[..], &["--on-loss", "rejoin"]].concat());
    let mut other = trial.run_script("echo other; exec sleep 1000").with(polls).start();
    other.stdout.wait_for("other");
    unhealthy.stderr.wait_for("unhealthy, the command has been stopped");
    unhealthy.stderr.wait_for("waiting for leadership");
    other.stop();
    unhealthy.stdout.wait_for("up");
}

/// It is killed with its children: those of an earlier check would stay for good.
#[test]
fn check_that_hangs_fails_and_leaves_no_process() {
    let trial = VVM.trial();
    let hanging = "echo looked; trap '' TERM; sleep 1001 & sleep 1002; :";
    // Long enough that a busy machine has started the check by then.
    let mut running = start(&trial, hanging, &["--check-timeout", "1s", "--check-failures", "1000"]);
    for _ in 0..3 {
        running.stderr.wait_for("looked");
    }
    let left = |command: &str| trial.processes().of(command).len();
    eventually("one check is left", || left("sleep 1001") <= 1 && left("sleep 1002") <= 1);
    running.stop();
    let limited = start(&trial, hanging, &["--check-timeout", "1s", "--check-failures", "3"]);
    let finished = limited.finish();
    finished.assert_ended(81, "failed 3 times in a row: no answer within 1s");
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

#[test]
fn hanging_check_ends_with_the_command() {
    let trial = VVM.trial();
    let line = "echo looked; trap '' TERM; (setsid sleep 1001 &); while :; do sleep 1002; done";
    let mut running = start(&trial, line, &["--check-timeout", "1h"]);
    running.stderr.wait_for("looked");
    assert_eq!(running.stop().signal(), 15);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

#[test]
fn check_that_runs_when_the_command_ends_is_killed_and_counts_for_nothing() {
    let trial = VVM.trial();
    let worker = "cd $FOLDER; echo > runs; echo up; until test -e looked; do sleep 0.01; done
                  rm runs looked; exit 5";
    let check =
        "cd $FOLDER; until test -e runs; do sleep 0.01; done; echo > looked; trap '' TERM; sleep 1001";
    let often = ["--check-interval", "20ms", "--check-failures", "1", "--check-timeout", "1h"];
    let restarts = ["--on-exit", "restart", "--restart-limit", "1", "--restart-backoff", "20ms"];
    let run = trial.run_script(worker).with(["--check", check]).with(often).with(restarts);
    let finished = run.environment("FOLDER", &trial.folder().display().to_string()).finish();
    finished.assert_code(5);
    assert_eq!(finished.stdout, ["up", "up"]);
    assert!(!finished.says("behind") && !finished.says("failed"), "{:#?}", finished.stderr);
}

#[test]
fn nothing_is_checked_while_what_the_command_has_left_is_stopped() {
    let trial = VVM.trial();
    let worker = "rm -f $TOLD.up; (trap 'echo > $TOLD; sleep 0.5; rm $TOLD; exit' TERM
                  echo > $TOLD.up; while :; do sleep 0.01; done) &
                  until test -e $TOLD.up; do sleep 0.01; done; exit 5";
    let often = ["--check", "! test -e $TOLD", "--check-interval", "20ms", "--check-failures", "1"];
    let restarts = ["--on-exit", "restart", "--restart-limit", "1", "--restart-backoff", "20ms"];
    let told = trial.folder().join("told").display().to_string();
    let run = trial.run_script(worker).with(often).with(restarts).environment("TOLD", &told);
    run.finish().assert_ended(5, "behind, which");
}
