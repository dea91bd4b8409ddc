//! Signals: forwarded ones, and stop requests. `--pre-stop` runs before the command is signalled, in the command's
//! containment, and ends within the lease. `once` has the orders in which a stop reaches command and `vvm`.

use crate::VVM;
use harness::{Run, Running, Trial, eventually, has_ended};
use rustix::process::Signal;
use vvm_containment::signal_named;

#[test]
fn process_group_of_the_worker_gets_forwarded_signals() {
    let trial = VVM.trial();
    let script = "trap 'echo parent' USR1; sh -c \"trap 'echo child; exit' USR1; echo up; while :; do sleep \
        0.01; done\" & wait; wait";
    let running = trial.run_script(script).through(["setsid"]).up();
    running.signal(Signal::USR1);
    let mut said = running.finish().stdout;
    said.sort();
    assert_eq!(said, ["child", "parent", "up"]);
}

/// The parent of `vvm` has blocked its signals, and nothing else wakes a process: a renewal follows after 15 minutes.
#[test]
fn blocked_signals_are_unblocked_where_they_are_caught() {
    let trial = VVM.trial();
    let blocking = ["env", "--block-signal=CHLD", "--block-signal=TERM"];
    let run = |script: &str| trial.run_script(script).with(["--ttl", "1h"]).through(blocking).start();
    let ends = run("exit 3");
    eventually("vvm has ended with its command", || has_ended(ends.guardian));
    ends.finish().assert_code(3);
    let mut stopped = run("echo up; exec sleep 1000");
    stopped.stdout.wait_for("up");
    stopped.signal(Signal::TERM);
    eventually("vvm has ended", || has_ended(stopped.guardian));
    assert_eq!(stopped.finish().signal(), 15);
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored_but_for_five() {
    let trial = VVM.trial();
    let show = ["grep", "SigIgn", "/proc/self/status"];
    let finished = trial.run(show).through(["env", "--ignore-signal"]).finish();
    finished.assert_code(0);
    let mask = finished.stdout[0].rsplit('\t').next().unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap();
    let of_env_and_of_the_c_library = [11, 32, 33];
    let others = (1..=64).filter(|number| mask & (1 << (number - 1)) == 0);
    let others = others.filter(|number| !of_env_and_of_the_c_library.contains(number)).collect::<Vec<_>>();
    assert_eq!(others, [9, 10, 12, 13, 15, 17, 19], "KILL, USR1, USR2, PIPE, TERM, CHLD, STOP");
}

#[test]
fn suspended_worker_is_continued_to_handle_the_stop_signal() {
    let worker = "trap 'exit 8' TERM; echo up; kill -STOP $$; while :; do sleep 0.01; done";
    VVM.trial().run_script(worker).up().stop().assert_code(8);
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
        finished.assert_says("stopped: the command exited with status 0");
        assert_eq!((finished.code(), finished.stdout.len()), (0, 2), "{by}: {:#?}", finished.stdout);
    }
}

#[test]
fn result_file_says_how_vvm_has_ended_that_was_stopped_by_a_signal() {
    for (signal, exit_status) in [(Signal::TERM, None), (Signal::POWER, Some(128 + 30))] {
        let trial = VVM.trial();
        let running = trial.run_forever().with(["--result-file", &trial.result_file()]).up();
        running.signal(signal);
        assert_eq!(running.finish().status.code(), exit_status, "{signal:?}");
        let result = trial.result();
        assert_eq!(result["exit_status"].as_i64(), exit_status.map(i64::from), "{result}");
        assert_eq!(result["signal"].is_null(), exit_status.is_some(), "{result}");
    }
}

fn with_pre_stop(trial: &Trial, pre_stop: &str) -> Run {
    let worker = "trap 'echo told >> $NOTES; exit 5' TERM; echo up; while :; do sleep 0.01; done";
    let notes = trial.folder().join("notes").display().to_string();
    trial.run_script(worker).with(["--pre-stop", pre_stop]).environment("NOTES", &notes)
}

/// Checks the exit status and what command and pre-stop have noted, in order. Returns what `vvm` said.
fn ends_with(trial: &Trial, running: Running, code: i32, notes: &[&str]) -> Vec<String> {
    let finished = running.finish();
    finished.assert_code(code);
    let noted = std::fs::read_to_string(trial.folder().join("notes")).unwrap_or_default();
    assert_eq!(noted.lines().collect::<Vec<_>>(), notes);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
    assert_eq!(finished.stdout, ["up"], "standard output is the command's");
    finished.stderr
}

#[test]
fn pre_stop_ends_before_the_command_is_signalled() {
    let trial = VVM.trial();
    let pre_stop = "sleep 0.3; echo pre $VVM_LEADER_NAME >> $NOTES; echo heard; exit 1";
    let running = with_pre_stop(&trial, pre_stop).up();
    running.signal(Signal::TERM);
    let said = ends_with(&trial, running, 5, &["pre payroll", "told"]).join("\n");
    assert!(said.contains("heard") && said.contains("--pre-stop exited with status 1"), "{said}");
}

#[test]
fn hanging_pre_stop_is_killed_with_its_children() {
    let trial = VVM.trial();
    let hangs = "trap '' TERM; sleep 1000 & (setsid sleep 1000 &); sleep 1000";
    let running = with_pre_stop(&trial, hangs).with(["--pre-stop-timeout", "100ms"]).up();
    running.signal(Signal::TERM);
    let said = ends_with(&trial, running, 5, &["told"]).join("\n");
    assert!(said.contains("--pre-stop took longer than it may"), "{said}");
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
    ends_with(&trial, running, 79, &["pre", "told"]);
}

#[test]
fn pre_stop_does_not_run_if_the_command_exits_by_itself() {
    let trial = VVM.trial();
    let pre_stop = format!("echo pre >> '{}'", trial.folder().join("notes").display());
    let running = trial.run(["echo", "up"]).with(["--pre-stop", &pre_stop]).start();
    ends_with(&trial, running, 0, &[]);
}

#[test]
fn pre_stop_ends_in_its_time_though_the_command_ends_before() {
    let trial = VVM.trial();
    let worker = "echo up; until test -e $NOTES; do sleep 0.01; done; echo over >> $NOTES";
    let pre_stop = "echo pre >> $NOTES; until grep -q over $NOTES; do sleep 0.01; done; sleep 0.5
                    echo unregistered >> $NOTES; exit 3";
    let notes = trial.folder().join("notes").display().to_string();
    let run = trial.run_script(worker).with(["--pre-stop", pre_stop]).environment("NOTES", &notes);
    let running = run.up();
    running.signal(Signal::TERM);
    let said = ends_with(&trial, running, 0, &["pre", "over", "unregistered"]).join("\n");
    assert!(said.contains("--pre-stop exited with status 3"), "{said}");
}
