//! `vvm watch` of real processes.

use crate::VVM;
use harness::{Lines, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

#[test]
fn crash_shows_as_the_end_of_renewals_in_json() {
    let trial = VVM.trial();
    let options = ["--holder", "first", "--ttl", harness::SHORT_TTL];
    let mut first = trial.run_script("echo up; sleep 60").with(options).start();
    first.stdout.wait_for("up");
    let (storage, name) = (trial.storage(), trial.name());
    let mut watch = VVM.command(&[]);
    watch.args(["watch", "--storage", &storage, "--name", &name, "--interval", "100ms", "--json"]);
    let mut watching = watch.env("TRIAL", trial.mark()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of("vvm watch", watching.stdout.take().unwrap());
    let mut event = |word: &str| -> Value {
        serde_json::from_str(&lines.wait_for(&format!("\"event\":\"{word}\""))).unwrap()
    };
    assert_eq!(event("held")["holder"], "first");
    // The others do not release the record.
    first.crash();
    for process in trial.processes().0 {
        if process != Pid::from_child(&watching) {
            let _gone = kill_process(process, Signal::KILL);
        }
    }
    let overdue = event("overdue");
    assert_eq!((&overdue["holder"], &overdue["slot"]), (&"first".into(), &1.into()));
    assert!(overdue["silent_ms"].as_u64().unwrap() >= 2_000, "{overdue}");
    let mut second = trial.run_script("echo up; sleep 60").with(["--holder", "second"]).start();
    let leads = event("leads");
    assert_eq!((&leads["holder"], &leads["after"]), (&"second".into(), &"first".into()));
    second.stdout.wait_for("up");
    second.signal(Signal::TERM);
    second.finish();
    watching.kill().unwrap();
    watching.wait().unwrap();
    first.finish();
}

/// Without a change, no write would fail.
#[test]
fn watch_ends_when_the_reader_of_its_pipe_is_gone() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let mut watch = VVM.command(&[]);
    watch.args(["watch", "--storage", &trial.storage(), "--name", &trial.name(), "--interval", "100ms"]);
    let mut watching = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("free, last epoch"), "{line}");
    let mut status = None;
    eventually("the watch has ended", || {
        status = watching.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}
