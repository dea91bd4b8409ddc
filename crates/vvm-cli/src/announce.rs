//! Lines on standard error, which block on no pipe or terminal. A line that can't be written at once is dropped, so
//! that a paused reader or a stopped terminal does not hold up a renewal. The kernel calls a regular file always ready:
//! on a disk that hangs, a line holds up this process, and the kill deadline ends its command. With `--log-format json`
//! each line is one object. Changes of state are then events of `tracing` (`vvm_host`), and [`say_text`] prints
//! nothing. Events of `vvm` itself have the target `vvm`: text shows their message, except for changes of state; JSON
//! all fields. `VVM_LOG` selects events of the libraries.

use clap::ValueEnum;
use jiff::Timestamp;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, Mode, OFlags, fstat, open},
    io::{Errno, write},
    pipe::PIPE_BUF,
    termios::{LocalModes, isatty, tcgetattr, tcgetpgrp},
};
use serde_json::{Map, Value, json};
use std::{
    fmt, io, mem,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    sync::OnceLock,
    time::Duration,
};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_containment::{Level, own_group};
use vvm_host::status::Role;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

static LOG: OnceLock<LogFormat> = OnceLock::new();

pub(crate) fn start_log(format: LogFormat) {
    let _ = LOG.set(format);
}

pub(crate) fn is_json() -> bool {
    LOG.get() == Some(&LogFormat::Json)
}

static QUIET: OnceLock<()> = OnceLock::new();

/// From here on, leaves out lines about changes of state, and all events of `vvm` but the one about the end.
pub(crate) fn quieten() {
    let _ = QUIET.set(());
}

pub(crate) fn is_quiet() -> bool {
    QUIET.get().is_some()
}

fn is_wanted(members: &Map<String, Value>) -> bool {
    !is_quiet() || members.get("event").and_then(Value::as_str) == Some("concluded")
}

/// Closes the standard output and error of this process if they are terminals: the shell has printed its prompt again,
/// and not even the deadman or a panic may write there. Files, pipes and journals stay open. Does not block.
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

pub(crate) fn announce(line: fmt::Arguments<'_>) {
    let line = line.to_string();
    match LOG.get() {
        Some(LogFormat::Json) => write_event("info", "message", json!({"message": line})),
        Some(LogFormat::Text) => write_line(format!("{:.3} vvm: {}\n", now(), printable(&line)).as_bytes()),
        None => write_line(format!("vvm: {}\n", printable(&line)).as_bytes()),
    }
}

static CONTAINMENT: OnceLock<Level> = OnceLock::new();

/// Escapes what a terminal would not print: a record may contain anything, its control sequences included. What is escaped
/// already stays as it is.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |char: char| match char {
        '"' | '\'' | '\\' => char.to_string(),
        _ => char.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

pub(crate) fn set_containment(level: Level) {
    let _ = CONTAINMENT.set(level);
}

pub(crate) fn write_event(level: &str, event: &str, mut members: Value) {
    let has_containment = ["campaigning", "leading", "concluded"].contains(&event);
    if let Some(containment) = CONTAINMENT.get().filter(|_| has_containment) {
        members["containment"] = containment.to_string().into();
    }
    if members.get("message").is_none() {
        members["message"] = message(event, &members).into();
    }
    let at = now();
    members["at"] = format!("{at:.3}").into();
    members["unix_ms"] = at.as_millisecond().into();
    members["level"] = level.into();
    members["event"] = event.into();
    write_line(format!("{members}\n").as_bytes());
}

/// Returns `NAME slot SLOT: EVENT: OUTCOME: REASON`, with what the event has of it.
fn message(event: &str, members: &Value) -> String {
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

pub(crate) fn now() -> Timestamp {
    Timestamp::default().checked_add(SystemWallClock.since_unix_epoch()).unwrap_or(Timestamp::MAX)
}

pub(crate) fn write_line(line: &[u8]) {
    let target = rustix::stdio::stderr();
    // `stty tostop` stops background processes that write.
    let stops_us = tcgetattr(target).is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP))
        && tcgetpgrp(target).ok() != own_group();
    if !stops_us {
        write_what_fits(target, line);
    }
}

/// Takes no lock: a thread that hangs with a disk would hold it.
fn write_what_fits(target: BorrowedFd<'_>, mut line: &[u8]) {
    let own = own_description(target);
    let mut patience = PATIENCE;
    while !line.is_empty() {
        let written = match &own {
            Some(own) => write(own, line),
            // A pipe is ready when it has room for this many bytes, and not for more.
            None if is_ready(target, Duration::ZERO) => write(target, &line[..line.len().min(PIPE_BUF)]),
            None => return,
        };
        match written {
            Ok(written @ 1..) => line = &line[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !patience.is_zero() && is_ready(target, mem::take(&mut patience)) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Opens a pipe or terminal anew: the description that others share must stay blocking, and a terminal is called ready
/// while it has any room, even if it has too little for a line.
fn own_description(target: BorrowedFd<'_>) -> Option<OwnedFd> {
    let is_pipe = || fstat(target).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_fifo());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", target.as_raw_fd());
    let opened = (isatty(target) || is_pipe()).then(|| open(path, flags, Mode::empty()));
    opened?.ok()
}

/// How long a line waits once: another process may be writing to the same terminal.
const PATIENCE: Duration = Duration::from_millis(2);

fn is_ready(target: BorrowedFd<'_>, within: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(target, PollFlags::OUT)];
    let within = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
    poll(&mut fds, Some(&within)).is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

macro_rules! say {
    ($($line:tt)*) => { $crate::announce::announce(format_args!($($line)*)) };
}
pub(crate) use say;

/// [`announce`] with a format string, for text alone: programs get the same as an event with fields. About a
/// change of state, which `--quiet` leaves out.
macro_rules! say_text {
    ($($line:tt)*) => {
        if !$crate::announce::is_quiet() && !$crate::announce::is_json() {
            $crate::announce::announce(format_args!($($line)*));
        }
    };
}
pub(crate) use say_text;

const FILTER_VARIABLE: &str = "VVM_LOG";

/// Errors of our crates, but not of the orchestrator, whose problem is in the last line of a run. Nothing of other
/// libraries: an error of a storage's client is one attempt of many, and `vvm` reports those that matter.
const DEFAULT_FILTER: &str =
    "off,vvm_clock=error,vvm_deadman=error,primary_only=error,vvm_host=error,vvm_storage=error";

const OWN_TARGET: &str = "vvm";

#[derive(Debug, thiserror::Error)]
#[error("VVM_LOG={0}: write off, error, warn, info, debug or trace, or TARGET=LEVEL, separated by commas")]
pub(crate) struct InvalidFilter(String);

/// A bare word that is no level is refused: tracing takes it for a target, and would log nothing.
pub(crate) fn check_filter() -> Result<(), InvalidFilter> {
    let Some(filter) = std::env::var_os(FILTER_VARIABLE) else { return Ok(()) };
    let filter = filter.to_string_lossy();
    let is_word = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    let is_valid = filter.is_empty() || filter.split(',').all(is_word) && EnvFilter::try_new(&filter).is_ok();
    if is_valid { Ok(()) } else { Err(InvalidFilter(filter.into_owned())) }
}

pub(crate) fn start_events() {
    let filter = std::env::var(FILTER_VARIABLE).ok().filter(|filter| !filter.is_empty());
    let filter = EnvFilter::new(filter.as_deref().unwrap_or(DEFAULT_FILTER));
    // By the whole target: as a directive, `vvm` would also match `vvm_host`.
    let ours = || filter_fn(|event| event.target() == OWN_TARGET && *event.level() <= tracing::Level::INFO);
    let _is_first = if is_json() {
        tracing_subscriber::registry().with(JsonLayer.with_filter(filter.or(ours()))).try_init().is_ok()
    } else {
        let not_ours = filter_fn(|event| event.target() != OWN_TARGET);
        let others = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| NonBlockingStderr);
        let others = others.with_filter(filter.and(not_ours));
        tracing_subscriber::registry().with(others).with(TextLayer.with_filter(ours())).try_init().is_ok()
    };
}

struct NonBlockingStderr;

impl io::Write for NonBlockingStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the message of each event of ours, except changes of the role: [`say_text`] says them in other words.
struct TextLayer;

impl<S: Subscriber> Layer<S> for TextLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let members = members(event);
        let word = members.get("event").and_then(Value::as_str).unwrap_or_default();
        let is_written = is_wanted(&members) && !Role::WORDS.contains(&word);
        if let Some(line) = members.get("message").and_then(Value::as_str).filter(|_| is_written) {
            say!("{line}");
        }
    }
}

struct JsonLayer;

impl<S: Subscriber> Layer<S> for JsonLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut members = members(event);
        let metadata = event.metadata();
        if metadata.target() == OWN_TARGET && !is_wanted(&members) {
            return;
        }
        if metadata.target() != OWN_TARGET {
            members.insert("target".into(), metadata.target().into());
        }
        let word = members.remove("event");
        let word = word.as_ref().and_then(Value::as_str).unwrap_or("log");
        write_event(&metadata.level().to_string().to_lowercase(), word, members.into());
    }
}

fn members(event: &Event<'_>) -> Map<String, Value> {
    serde_json::to_value(event.field_map())
        .ok()
        .and_then(|fields| fields.as_object().cloned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::{PseudoTerminal, eventually};
    use std::{
        io::{Read as _, Write as _},
        os::fd::AsFd as _,
    };

    #[test]
    fn line_that_a_paused_reader_leaves_no_room_for_is_cut_and_does_not_block() {
        let (mut reader, mut pipe) = io::pipe().unwrap();
        let line = [b'x'; 3 * PIPE_BUF];
        write_what_fits(pipe.as_fd(), &line);
        let mut read = vec![0; line.len()];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(read, line, "whole, where there is room");
        rustix::pipe::fcntl_setpipe_size(&pipe, 2 * PIPE_BUF).unwrap();
        pipe.write_all(&[b'y'; PIPE_BUF]).unwrap();
        write_what_fits(pipe.as_fd(), &line);
        drop(pipe);
        assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), 2 * PIPE_BUF);
    }

    #[test]
    fn line_that_a_paused_terminal_leaves_no_room_for_is_cut_and_does_not_block() {
        let terminal = PseudoTerminal::open();
        let side = terminal.open_side();
        for length in (1..300).cycle().take(1000) {
            write_what_fits(side.as_fd(), &[&b"x".repeat(length)[..], b"\n"].concat());
        }
        assert!(terminal.discard().len() < 100_000);
        eventually("it takes lines again", || {
            write_what_fits(side.as_fd(), b"over\n");
            terminal.discard().ends_with(b"over\r\n")
        });
    }
}
