//! Lines on standard error that never block: a line that can't be written at once is dropped, so that a
//! paused reader or a stopped terminal does not hold up a renewal.
//!
//! With `--log-format json` each line is one object. Changes of state are then events of `tracing`
//! (`vvm_host`), and [`say_text`] prints nothing.

use clap::ValueEnum;
use jiff::Timestamp;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, isatty, tcgetattr, tcgetpgrp},
};
use serde_json::{Map, Value};
use std::{fmt, io::Write as _, sync::OnceLock};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_containment::{Level, own_group};

/// What standard error contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The format of a log. Unset in commands whose lines are answers to an operator: they have no timestamps.
static LOG: OnceLock<LogFormat> = OnceLock::new();

/// Makes standard error a log: from here on lines have timestamps and this format.
pub(crate) fn start_log(format: LogFormat) {
    // A process has one command line.
    let _ = LOG.set(format);
}

/// Whether lines are JSON objects.
pub(crate) fn is_json() -> bool {
    LOG.get() == Some(&LogFormat::Json)
}

/// Closes the standard output and error of this process if they are terminals: the shell has printed its
/// prompt again, and not even the deadman or a panic may write there. Files, pipes and journals stay open.
/// Does not block.
pub(crate) fn leave_terminal() {
    // The standard input of a stage is empty, and can't be written either (`launch::accept`).
    let nothing = rustix::stdio::stdin();
    if isatty(rustix::stdio::stdout()) {
        let _ = rustix::stdio::dup2_stdout(nothing);
    }
    if isatty(rustix::stdio::stderr()) {
        let _ = rustix::stdio::dup2_stderr(nothing);
    }
}

/// Writes `line`, as text or as an event "message".
pub(crate) fn announce(line: fmt::Arguments<'_>) {
    match LOG.get() {
        Some(LogFormat::Json) => {
            write_event("info", "message", Map::from_iter([("message".into(), line.to_string().into())]))
        }
        Some(LogFormat::Text) => write_line(format!("{:.3} vvm: {line}\n", now()).as_bytes()),
        None => write_line(format!("vvm: {line}\n").as_bytes()),
    }
}

/// The level of containment, where there is one.
static CONTAINMENT: OnceLock<Level> = OnceLock::new();

/// Has the level of containment in the events about a campaign and its end.
pub(crate) fn contained(level: Level) {
    // A process has one.
    let _ = CONTAINMENT.set(level);
}

/// Writes an object with these members, the time, the level and the name of the event. An event that has no
/// message for people gets one.
pub(crate) fn write_event(level: &str, event: &str, mut members: Map<String, Value>) {
    let has_containment = ["campaigning", "leading", "concluded"].contains(&event);
    if let Some(containment) = CONTAINMENT.get().filter(|_| has_containment) {
        members.insert("containment".into(), containment.to_string().into());
    }
    if !members.contains_key("message") {
        members.insert("message".into(), message(event, &members).into());
    }
    let at = now();
    let mut object = Map::from_iter([
        ("at".into(), format!("{at:.3}").into()),
        ("unix_ms".into(), at.as_millisecond().into()),
        ("level".into(), level.into()),
        ("event".into(), event.into()),
    ]);
    object.extend(members);
    write_line(format!("{}\n", Value::Object(object)).as_bytes());
}

/// Returns `NAME slot SLOT: EVENT: OUTCOME: REASON`, with what the event has of it.
fn message(event: &str, members: &Map<String, Value>) -> String {
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let mut message = text("name").unwrap_or("vvm").to_owned();
    if let Some(slot) = members.get("slot").and_then(Value::as_u64) {
        message += &format!(" slot {slot}");
    }
    let words = [Some(event), text("outcome"), text("why")].into_iter().flatten();
    let words = words.map(|word| word.replace('_', " ")).chain(text("reason").map(str::to_owned));
    words.for_each(|part| message += &format!(": {part}"));
    message
}

fn now() -> Timestamp {
    // Fails after the year 9999.
    Timestamp::default().checked_add(SystemWallClock.since_unix_epoch()).unwrap_or(Timestamp::MAX)
}

/// Writes a line that ends in a newline, or drops it.
pub(crate) fn write_line(line: &[u8]) {
    let target = rustix::stdio::stderr();
    let mut fds = [PollFd::new(&target, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::OUT);
    // `stty tostop` stops background processes that write.
    let stops_us = tcgetattr(target).is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP))
        && tcgetpgrp(target).ok() != own_group();
    if ready && !stops_us {
        // There is no other place to report that standard error is gone.
        let _ = std::io::stderr().write_all(line);
    }
}

/// [`announce`] with a format string.
macro_rules! say {
    ($($line:tt)*) => { $crate::announce::announce(format_args!($($line)*)) };
}
pub(crate) use say;

/// [`announce`] with a format string, for text alone: programs get the same as an event with fields.
macro_rules! say_text {
    ($($line:tt)*) => {
        if !$crate::announce::is_json() {
            $crate::announce::announce(format_args!($($line)*));
        }
    };
}
pub(crate) use say_text;
