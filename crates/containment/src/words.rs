//! Process ids, signals, instants and process ends as words of a message.

use crate::processes::Ended;
use rustix::process::{Pid, Signal};
use vvm_clock::Instant;

const NONE: u64 = 0;
const SOME: u64 = 1;
const EXITED: u64 = 0;
const SIGNALLED: u64 = 1;

pub(crate) fn instant_words(instant: Option<Instant>) -> [u64; 2] {
    instant.map_or([NONE, 0], |at| [SOME, at.as_nanos()])
}

pub(crate) fn instant([tag, nanos, ..]: [u64; 4]) -> Option<Instant> {
    (tag == SOME).then(|| Instant::from_nanos(nanos))
}

pub(crate) fn optional_pid_word(pid: Option<Pid>) -> u64 {
    pid.map_or(NONE, pid_word)
}

pub(crate) fn pid_word(pid: Pid) -> u64 {
    u64::from(pid.as_raw_pid().unsigned_abs())
}

/// Returns `None` for zero, which is no process.
pub(crate) fn pid(word: u64) -> Option<Pid> {
    Pid::from_raw(i32::try_from(word).ok()?)
}

pub(crate) fn signal_word(signal: Signal) -> u64 {
    u64::from(signal.as_raw().unsigned_abs())
}

pub(crate) fn signal(word: u64) -> Option<Signal> {
    Signal::from_named_raw(i32::try_from(word).ok()?)
}

pub(crate) fn ended_words(ended: Ended) -> [u64; 2] {
    match ended {
        Ended::Exited(status) => [EXITED, u64::from(status)],
        Ended::Signalled(number) => [SIGNALLED, u64::from(number.unsigned_abs())],
    }
}

pub(crate) fn ended(tag: u64, number: u64) -> Option<Ended> {
    match tag {
        EXITED => Some(Ended::Exited(u8::try_from(number).ok()?)),
        SIGNALLED => Some(Ended::Signalled(i32::try_from(number).ok()?)),
        _ => None,
    }
}
