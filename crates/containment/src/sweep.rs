//! Killing and reaping all descendants. A pass kills every process that it finds and reaps those that have ended. It is
//! repeated while it reaps any, because the children of a dead parent have become ours. When it reaps none, each of our
//! children has got SIGKILL, so one will end and cause the next pass.

use crate::{
    containment::Containment,
    event::SupervisionEvent,
    processes::{Reap, Reaped, reap, wait_for_any},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};

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

/// Kills and reaps until no descendant is left. Blocks, also for one in an uninterruptible call or of another user.
pub fn end_all(
    containment: &Containment,
    mut on_reaped: impl FnMut(Reaped),
    mut on_event: impl FnMut(SupervisionEvent),
) {
    let mut out_of_reach_report = OutOfReachReport::default();
    while let Sweep::Waiting { out_of_reach } = sweep(containment, &mut on_reaped) {
        let processes = out_of_reach_report.once(out_of_reach);
        if !processes.is_empty() {
            on_event(SupervisionEvent::OutOfReach(processes));
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
    pub(crate) fn once(&mut self, out_of_reach: Vec<Pid>) -> Vec<Pid> {
        let is_new = !out_of_reach.is_empty() && !std::mem::replace(&mut self.reported, true);
        if is_new { out_of_reach } else { Vec::new() }
    }
}
