//! `vvm demo` as a whole: its output and its checks. It leaves no process and no file.

use crate::VVM;
use harness::{Lines, Trial, eventually};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::{
    fs,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

fn demo(trial: &Trial, options: &[&str]) -> Command {
    let mut command = VVM.command(&[]);
    command.arg("demo").args(options);
    // The demo must ignore settings for `vvm run`.
    command.env("VVM_SLOTS", "2").env("VVM_TTL", "soon");
    command.env("TRIAL", trial.mark()).env_remove("TMPDIR").stdin(Stdio::null());
    command
}

fn summary(output: &Output) -> Value {
    let summary = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    assert_eq!(summary["event"], "summary");
    summary
}

fn check_safety(trial: &Trial, output: &Output, summary: &Value) {
    assert_eq!(summary["overlaps"], 0, "{summary}");
    let epochs = summary["epochs"].as_array().unwrap().iter().map(|epoch| epoch.as_u64().unwrap());
    let epochs = epochs.collect::<Vec<_>>();
    assert!(epochs.is_sorted_by(|earlier, later| earlier < later), "{summary}");
    let early = summary["kill_after_deadline_ms"].as_f64().is_some_and(|late| late < 0.0);
    assert!(!early, "{summary}");
    let held = summary["held"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if held { 0 } else { 1 }));
    assert_eq!(held, summary["failures"].as_array().unwrap().is_empty(), "{summary}");
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

#[test]
fn demo_whose_reader_has_gone_ends_without_a_word() {
    let trial = VVM.trial();
    let mut child = demo(&trial, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

struct Running {
    child: Child,
    stdout: Lines,
    trial: Trial,
}

impl Running {
    fn at_work() -> Self {
        let trial = VVM.trial();
        let temporary = trial.folder().join("temporary");
        fs::create_dir(&temporary).unwrap();
        let mut command = demo(&trial, &["--ttl", "20s"]);
        let mut child = command.env("TMPDIR", &temporary).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = Lines::of("stdout", child.stdout.take().unwrap());
        stdout.wait_for("its worker begins (process");
        assert_eq!(fs::read_dir(temporary).unwrap().count(), 1);
        // The demo, three guardians with their hosts, and a worker.
        eventually("all processes are up", || trial.processes().0.len() >= 8);
        Self { child, stdout, trial }
    }
}

#[test]
fn interrupted_or_killed_demo_leaves_no_process_and_no_file() {
    std::thread::scope(|scope| {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::KILL] {
            scope.spawn(move || {
                let mut running = Running::at_work();
                kill_process(Pid::from_child(&running.child), signal).unwrap();
                assert_eq!(running.child.wait().unwrap().signal(), Some(signal.as_raw()));
                if signal == Signal::KILL {
                    eventually("no process is left", || running.trial.processes().0.is_empty());
                    return;
                }
                assert!(running.trial.processes().0.is_empty(), "{:?}", running.trial.processes().describe());
                assert_eq!(fs::read_dir(running.trial.folder().join("temporary")).unwrap().count(), 0);
            });
        }
    });
}

#[test]
fn vvm_run_that_ends_unasked_fails_a_check_that_names_it() {
    let mut running = Running::at_work();
    let guardians = running.trial.processes().with("vvm run ");
    kill_process(guardians[0], Signal::KILL).unwrap();
    let line = running.stdout.wait_for("✗ every step was done");
    assert!(line.contains("was ended by SIGKILL, and should not have"), "{line}");
    assert_eq!(running.child.wait().unwrap().code(), Some(1));
    assert!(running.trial.processes().0.is_empty());
}

#[test]
fn demo_on_a_machine_that_stalled_begins_again_and_says_so() {
    let trial = VVM.trial();
    let mut child = demo(&trial, &["--ttl", "2s"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = Lines::of("stdout", child.stdout.take().unwrap());
    let mut stderr = Lines::of("stderr", child.stderr.take().unwrap());
    stdout.wait_for("its worker begins (process");
    // Past the kill deadline of the leader, which is 0.8 TTL.
    let all = trial.processes();
    for signal in [Signal::STOP, Signal::CONT] {
        for process in &all.0 {
            let _gone = kill_process(*process, signal);
        }
        if signal == Signal::STOP {
            SystemClock::block_for(Duration::from_millis(1_700));
        }
    }
    let line = stderr.wait_for("this machine was late by");
    assert!(line.contains(" in step ") && line.contains("try 2 of 3"), "{line}");
    stdout.wait_for("two workers at the same time");
    child.wait().unwrap();
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// Ctrl-C reaches the whole process group of the terminal. A candidate leaves it just after its start.
#[test]
fn ctrl_c_while_candidates_start_is_an_interruption() {
    for _ in 0..2 {
        let trial = VVM.trial();
        let mut command = demo(&trial, &["--ttl", "20s"]);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Lines::of("stdout", child.stdout.take().unwrap());
        lines.wait_for("is started");
        kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
        assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
    }
}

#[test]
fn file_that_cannot_be_written_is_named_before_the_demo_begins_and_stays_as_it_was() {
    let trial = VVM.trial();
    let missing = trial.folder().join("missing/demo.svg");
    for (path, cause) in
        [(missing.to_str().unwrap(), "no such file or directory"), ("/dev/full", "no regular file")]
    {
        let output = demo(&trial, &["--svg", path]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("--svg: can't write {path} (")) && said.contains(cause), "{said}");
    }
}

#[test]
fn short_ttl_is_refused_at_once() {
    let output = VVM.command(&[]).args(["demo", "--ttl", "200ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(output.stdout.is_empty(), "a step was shown before the refusal");
    assert!(String::from_utf8(output.stderr).unwrap().contains("choose a longer one"));
}

mod timed {
    use super::*;

    #[test]
    fn every_check_holds_and_nothing_is_left_behind() {
        VVM.timed("the demo", |attempt, trial| {
            let temporary = tempfile::tempdir_in("/dev/shm").unwrap();
            let svg = temporary.path().join("demo.svg");
            let mut command = demo(trial, &["--json", "--ttl", "2s", "--svg", svg.to_str().unwrap()]);
            let began_at = SystemClock::read();
            let output =
                command.env("TMPDIR", temporary.path()).current_dir(trial.folder()).output().unwrap();
            let summary = summary(&output);
            check_safety(trial, &output, &summary);
            // 1.1 TTL and 200 ms; a poll and 100 ms; what a scheduler needs.
            let bounds = [("crash_failover_ms", 2_400), ("handover_ms", 600), ("kill_after_deadline_ms", 20)];
            for (name, bound) in bounds {
                let Some(took) = summary[name].as_f64() else {
                    // It gave up waiting. A machine that is late for as long as an attempt to renew may take, a
                    // tenth of the TTL, can cause that.
                    let what = format!("{name} is missing. A delay that explains it: {summary}");
                    attempt.reported(&what, Duration::ZERO, Duration::from_millis(200), began_at)?;
                    panic!("{what}");
                };
                let took = Duration::from_secs_f64(took / 1000.0);
                attempt.reported(name, Duration::from_millis(bound), took, began_at)?;
            }
            assert_eq!(summary["held"], true, "{summary}");
            assert!(summary["epochs"].as_array().unwrap().len() >= 4, "{summary}");
            let picture = fs::read_to_string(&svg).unwrap();
            for epoch in summary["epochs"].as_array().unwrap() {
                assert!(picture.contains(&format!(" leads, epoch {epoch}")), "{picture}");
            }
            assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1, "the picture alone");
            assert_eq!(fs::read_dir(trial.folder()).unwrap().count(), 0);
            Ok(())
        });
    }
}
