//! Reaping children that have ended.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid},
};
use std::{fmt, os::fd::OwnedFd};

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this exit status.
    Exited(u8),
    /// By the signal of this number.
    Signalled(i32),
}

/// A child that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reaped {
    /// Its number, which another process may have by now.
    pub pid: Pid,
    /// How it ended.
    pub ended: Ended,
}

/// What a look for ended children found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reap {
    /// One has ended, and is gone now.
    One(Reaped),
    /// Children are left, all of them alive.
    NoneYet,
    /// No child is left. For a sub-reaper, that means no descendant.
    Childless,
}

impl Reap {
    /// Returns what an answer of wait(2) shows. `None` if it was interrupted.
    fn of(answer: rustix::io::Result<Option<(Pid, WaitStatus)>>) -> Option<Self> {
        Some(match answer {
            Ok(Some((pid, status))) => Self::One(Reaped { pid, ended: Ended::of(status) }),
            Ok(None) => Self::NoneYet,
            Err(Errno::INTR) => return None,
            Err(Errno::CHILD) => Self::Childless,
            // wait(2) documents no other error. One would prove nothing (I6).
            Err(_) => Self::NoneYet,
        })
    }
}

impl Ended {
    fn of(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Self::Signalled(signal),
            // An exit status has eight bits (wait(2)).
            None => Self::Exited(status.exit_status().unwrap_or(0) as u8),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(status) => write!(out, "exited with status {status}"),
            Self::Signalled(number) => match signal_hook::low_level::signal_name(number) {
                Some(name) => write!(out, "was ended by {name}"),
                None => write!(out, "was ended by signal {number}"),
            },
        }
    }
}

/// Reaps one child that has ended, if there is one. Never blocks.
pub fn reap() -> Reap {
    loop {
        if let Some(found) = Reap::of(wait(WaitOptions::NOHANG)) {
            return found;
        }
    }
}

/// Blocks until a child has ended, without reaping it; at once when there is no child.
pub(crate) fn wait_for_any() {
    let ended_but_kept = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::All, ended_but_kept), Err(Errno::INTR)) {}
}

/// Returns whether the process of a descriptor has ended, reaped or not.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows I6: without that proof, a guardian releases nothing.
    #[test]
    fn only_echild_proves_that_no_child_is_left() {
        let errors = (1..=133).map(Errno::from_raw_os_error).filter(|error| *error != Errno::CHILD);
        for error in errors {
            assert_ne!(Reap::of(Err(error)), Some(Reap::Childless), "{error:?}");
        }
        assert_eq!(Reap::of(Err(Errno::CHILD)), Some(Reap::Childless));
        assert_eq!(Reap::of(Ok(None)), Some(Reap::NoneYet));
    }
}
