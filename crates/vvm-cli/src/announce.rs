//! One line on standard error for each change of state, and nothing that could hold up a renewal.
//!
//! A reader that has stopped reading, a terminal that is paused, or one that stops background writers (`stty
//! tostop`) must not stall a process that has a lease to renew: what can't be written at once is dropped.
//!
//! For programs, each line is one JSON object instead. What changes the state then comes as an event with
//! fields (`situation`, by `tracing`), and what is said here to people alone is not said twice.

use crate::calendar::Moment;
use clap::ValueEnum;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, isatty, tcgetattr, tcgetpgrp},
};
use serde_json::{Map, Value};
use std::{fmt, io::Write as _, sync::OnceLock};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_containment::own_group;

/// Who reads standard error.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum Readers {
    #[default]
    #[value(name = "text")]
    People,
    #[value(name = "json")]
    Programs,
}

/// Set once, before anything is said that this concerns.
static READERS: OnceLock<Readers> = OnceLock::new();

/// From here on, lines are for `readers`.
pub(crate) fn speak_to(readers: Readers) {
    // A process has one command line.
    let _ = READERS.set(readers);
}

/// Who reads our lines.
pub(crate) fn readers() -> Readers {
    READERS.get().copied().unwrap_or_default()
}

/// From here on nothing is written to a terminal, by nobody in this process, be it the deadman or a panic:
/// whoever is at it has got his prompt back. A file, a pipe, a journal gets what it got before. Does not
/// block.
pub(crate) fn leave_terminal() {
    // Of a stage, it is empty, and can't be written either (`launch::accept`).
    let nothing = rustix::stdio::stdin();
    if isatty(rustix::stdio::stdout()) {
        let _ = rustix::stdio::dup2_stdout(nothing);
    }
    if isatty(rustix::stdio::stderr()) {
        let _ = rustix::stdio::dup2_stderr(nothing);
    }
}

/// Says `line` to whoever watches.
pub(crate) fn announce(line: fmt::Arguments<'_>) {
    match readers() {
        Readers::People => write_line(format!("vvm: {line}\n").as_bytes()),
        Readers::Programs => {
            write_object("info", "message", Map::from_iter([("message".into(), line.to_string().into())]))
        }
    }
}

/// Says `line` to people; programs are told the same as an event.
pub(crate) fn announce_to_people(line: fmt::Arguments<'_>) {
    if readers() == Readers::People {
        announce(line);
    }
}

/// Tells programs of an event, in a process that logs nothing by `tracing`; people are told in a line of
/// their own.
pub(crate) fn tell_programs(level: &str, event: &str, members: Map<String, Value>) {
    if readers() == Readers::Programs {
        write_object(level, event, members);
    }
}

/// Writes an object on a line of its own: these members, and when, how important, and what it is.
pub(crate) fn write_object(level: &str, event: &str, members: Map<String, Value>) {
    let at = SystemWallClock.since_unix_epoch();
    let mut object = Map::from_iter([
        ("at".into(), Moment(at).to_string().into()),
        ("unix_ms".into(), (at.as_millis() as u64).into()),
        ("level".into(), level.into()),
        ("event".into(), event.into()),
    ]);
    object.extend(members);
    write_line(format!("{}\n", Value::Object(object)).as_bytes());
}

/// Writes a line that ends in a newline, or drops it.
pub(crate) fn write_line(line: &[u8]) {
    let target = rustix::stdio::stderr();
    let mut fds = [PollFd::new(&target, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::OUT);
    let stops_us = tcgetattr(target).is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP))
        && tcgetpgrp(target).ok() != own_group();
    if ready && !stops_us {
        // Nobody is left to tell that standard error is gone.
        let _ = std::io::stderr().write_all(line);
    }
}

/// [`announce`] with a format string.
macro_rules! say {
    ($($line:tt)*) => { $crate::announce::announce(format_args!($($line)*)) };
}
pub(crate) use say;

/// [`announce_to_people`] with a format string.
macro_rules! say_to_people {
    ($($line:tt)*) => { $crate::announce::announce_to_people(format_args!($($line)*)) };
}
pub(crate) use say_to_people;
