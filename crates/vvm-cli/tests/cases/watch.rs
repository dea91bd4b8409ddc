//! `vvm watch` of real processes, in a pipe and on a terminal, which it restores.

use crate::VVM;
use harness::{Lines, Terminal, Trial, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
};

fn watch(trial: &Trial, options: &[&str]) -> (Child, Lines) {
    let name = trial.name();
    let usual = ["--name", &name];
    let mut child = VVM
        .command(&[])
        .args(["watch", "--storage", &trial.storage(), "--interval", "100ms"])
        .args(if options.contains(&"--name") { &[][..] } else { &usual[..] })
        .args(options)
        .env("TRIAL", trial.mark())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of("vvm watch", child.stdout.take().unwrap());
    (child, lines)
}

#[test]
fn each_change_is_one_line() {
    let trial = VVM.trial();
    let mut first = trial.run_script("echo up; sleep 60").with(["--holder", "first"]).start();
    first.stdout.wait_for("up");
    let (mut watching, mut lines) = watch(&trial, &[]);
    lines.wait_for("slot 1: held by first, epoch ");
    first.signal(Signal::TERM);
    lines.wait_for("slot 1: released, free, last epoch ");
    let mut second = trial.run_script("echo up; sleep 60").with(["--holder", "second"]).start();
    lines.wait_for("slot 1: leads: second, epoch ");
    second.stdout.wait_for("up");
    second.signal(Signal::TERM);
    lines.wait_for("released");
    watching.kill().unwrap();
    watching.wait().unwrap();
    first.finish();
    second.finish();
}

#[test]
fn crash_shows_as_the_end_of_renewals_in_json() {
    let trial = VVM.trial();
    let options = ["--holder", "first", "--ttl", harness::SHORT_TTL];
    let mut first = trial.run_script("echo up; sleep 60").with(options).start();
    first.stdout.wait_for("up");
    let (mut watching, mut lines) = watch(&trial, &["--json"]);
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

#[test]
fn screen_cursor_and_keyboard_are_restored_on_each_way_out() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let mut terminal = Terminal::new(&trial);
    let line = format!(
        "TERM=xterm '{}' watch --storage '{}' --name {}; echo left $(stty -a | grep -o -E -e '-?(icanon|echo) \
         ')",
        VVM.path(),
        trial.storage(),
        trial.name()
    );
    let watching = || trial.processes().with(" watch ").first().copied();
    terminal.type_line("stty echo");
    for way in ["q", "Ctrl-C", "SIGTERM"] {
        terminal.type_line(&line);
        let entered = terminal.screen.wait_for("\x1b[?1049h");
        assert!(entered.contains("\x1b[?25l"), "{way}: {entered:?}");
        terminal.screen.wait_for("free, last epoch");
        match way {
            "q" => terminal.press(b"q"),
            "Ctrl-C" => terminal.press(b"\x03"),
            _ => kill_process(watching().unwrap(), Signal::TERM).unwrap(),
        }
        let left = terminal.screen.wait_for("\x1b[?25h\x1b[?1049l");
        let left = if left.contains("left icanon") { left } else { terminal.screen.wait_for("left icanon") };
        assert!(left.contains("left icanon echo"), "{way}: {left:?}");
        eventually("it has ended", || watching().is_none());
    }
    terminal.close();
}

#[test]
fn suspended_watch_restores_the_terminal_and_follows_its_size() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let mut terminal = Terminal::new(&trial);
    terminal.resize(30, 20);
    let vvm = VVM.path();
    let (storage, name) = (trial.storage(), trial.name());
    terminal.type_line(&format!("TERM=xterm '{vvm}' watch --storage '{storage}' --name {name}"));
    terminal.screen.wait_for("\x1b[?1049h");
    let narrow = terminal.screen.wait_for("free, last epoch");
    assert!(!narrow.contains("RENEWAL SEEN"), "{narrow:?}");
    terminal.resize(100, 20);
    terminal.screen.wait_for("RENEWAL SEEN");
    terminal.press(b"\x1a");
    terminal.screen.wait_for("\x1b[?25h\x1b[?1049l");
    terminal.screen.wait_for("Stopped");
    terminal.type_line("stty -a | grep -o -E -e '-?icanon '");
    assert!(!terminal.screen.wait_for("icanon").contains("-icanon"));
    terminal.type_line("fg");
    terminal.screen.wait_for("\x1b[?1049h");
    terminal.screen.wait_for("RENEWAL SEEN");
    terminal.press(b"q");
    eventually("it has ended", || trial.processes().with(" watch ").is_empty());
    terminal.type_line("echo left");
    assert!(terminal.screen.wait_for("left").contains("\x1b[?25h\x1b[?1049l"));
    terminal.close();
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

#[test]
fn pause_and_unknown_name_are_shown() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let (mut watching, mut lines) = watch(&trial, &["--json"]);
    lines.wait_for("\"event\":\"free\"");
    assert_eq!(trial.ask("pause", &["--name", &trial.name(), "--by", "alice"]).0, 0);
    lines.wait_for("\"by\":\"alice\",\"event\":\"paused\"");
    assert_eq!(trial.ask("resume", &["--name", &trial.name()]).0, 0);
    lines.wait_for("\"event\":\"resumed\"");
    watching.kill().unwrap();
    watching.wait().unwrap();
    let (mut watching, mut lines) = watch(&trial, &["--name", &trial.name().replace("payroll", "payrol")]);
    lines.wait_for("no candidate has ever used this name: check --name");
    watching.kill().unwrap();
    watching.wait().unwrap();
}
