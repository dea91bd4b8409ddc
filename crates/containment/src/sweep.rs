//! Killing until none is left.
//!
//! One pass kills every process it can see and reaps every one that has ended, and starts over as long as it
//! reaped any, because a dead parent's children have become ours by then. When a pass reaps none, each of our
//! children has been sent SIGKILL, so that an end is sure to come, and a next pass after it.

use crate::{
    established::Containment,
    event::Event,
    processes::{Reap, Reaped, reap, wait_for_any},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};

/// What a pass has left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sweep {
    /// No descendant.
    Clear,
    /// Some: sweep again once a child has ended.
    Waiting {
        /// These run as another user. This process may not kill them.
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

/// Kills everything in the namespace whose process 1 this is: at once, for a fork that the signal overtakes
/// is given up (fork(2), `ERESTARTNOINTR`).
fn kill_namespace() {
    // None is left, which the reaping tells.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), nix::sys::signal::SIGKILL);
}

/// Kills all that can be found. Returns the processes that this one may not kill.
fn kill_descendants(containment: &Containment) -> Vec<Pid> {
    let family = containment.family;
    if let Some(group) = &containment.group {
        // First, so that no process is left that forks. Where it fails, the next few lines do what they can.
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

/// Kills every descendant, reaps, and returns once none is left.
///
/// Blocks; a process in an uninterruptible system call, or of a user out of reach, is waited for.
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

/// What is reported about processes that can't be killed: once.
#[derive(Default, Debug)]
pub(crate) struct OutOfReachReport {
    reported: bool,
}

impl OutOfReachReport {
    /// The processes that are waited for; none if they were reported before.
    pub(crate) fn about(&mut self, out_of_reach: Vec<Pid>) -> Vec<Pid> {
        let is_new = !out_of_reach.is_empty() && !std::mem::replace(&mut self.reported, true);
        if is_new { out_of_reach } else { Vec::new() }
    }
}
