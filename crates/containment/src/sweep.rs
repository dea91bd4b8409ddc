//! Reaping children that have ended, and killing and reaping all descendants.
//!
//! A pass kills every process that it finds and reaps those that have ended. It is repeated while it reaps
//! any, because the children of a dead parent have become ours. When it reaps none, each of our children has
//! got SIGKILL, so one will end and cause the next pass.

use crate::{containment::Containment, event::Event};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid},
};
use std::{fmt, os::fd::OwnedFd};

/// What is left after a pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sweep {
    /// No descendant.
    Clear,
    /// Descendants: sweep again once a child has ended.
    Waiting {
        /// Processes of another user, which this one may not kill.
        out_of_reach: Vec<Pid>,
    },
}

/// Kills every descendant and reaps what has ended. Never blocks.
pub fn sweep(containment: &Containment, mut on_reaped: impl FnMut(Reaped)) -> Sweep {
    loop {
        let out_of_reach = if containment.whole_namespace {
            kill_namespace();
            Vec::new()
        } else {
            kill_descendants(containment)
        };
        let mut reaped_any = false;
        loop {
            match reap() {
                Reap::One(reaped) => {
                    reaped_any = true;
                    on_reaped(reaped);
                }
                Reap::Childless => return Sweep::Clear,
                Reap::NoneYet if reaped_any => break,
                Reap::NoneYet => return Sweep::Waiting { out_of_reach },
            }
        }
    }
}

/// Kills everything in the namespace whose process 1 this is, at once: the kernel gives up a fork that the
/// signal interrupts (fork(2), `ERESTARTNOINTR`).
fn kill_namespace() {
    // If it fails, no process is left.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), nix::sys::signal::SIGKILL);
}

/// Kills all descendants that it finds. Returns those that it may not kill.
fn kill_descendants(containment: &Containment) -> Vec<Pid> {
    let family = containment.family;
    if let Some(group) = &containment.group {
        // First, so that no process is left that forks. If it fails, the next lines kill what they find.
        let _ = group.kill();
    }
    family.kill_groups();
    let mut out_of_reach = Vec::new();
    for member in family.descendants() {
        if family.signal(member, Signal::KILL) == Err(Errno::PERM) {
            out_of_reach.push(member.pid);
        }
    }
    out_of_reach
}

/// Kills and reaps until no descendant is left.
///
/// Blocks, also for a process in an uninterruptible system call or of another user.
pub fn end_all(
    containment: &Containment,
    mut on_reaped: impl FnMut(Reaped),
    mut on_event: impl FnMut(Event),
) {
    let mut out_of_reach_report = OutOfReachReport::default();
    while let Sweep::Waiting { out_of_reach } = sweep(containment, &mut on_reaped) {
        let processes = out_of_reach_report.about(out_of_reach);
        if !processes.is_empty() {
            on_event(Event::OutOfReach(processes));
        }
        wait_for_any();
    }
}

/// Limits the report of processes that can't be killed to one.
#[derive(Default, Debug)]
pub(crate) struct OutOfReachReport {
    reported: bool,
}

impl OutOfReachReport {
    /// Returns the processes to report; none if some were reported before.
    pub(crate) fn about(&mut self, out_of_reach: Vec<Pid>) -> Vec<Pid> {
        let is_new = !out_of_reach.is_empty() && !std::mem::replace(&mut self.reported, true);
        if is_new { out_of_reach } else { Vec::new() }
    }
}

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
