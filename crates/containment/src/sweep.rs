//! Killing and reaping all descendants, in passes until no child is left: the children of a dead parent become ours,
//! and a pass without a free descriptor finds nothing.

use crate::{
    containment::Containment,
    event::SupervisionEvent,
    processes::{Reap, Reaped, reap},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};
use std::time::Duration;
use vvm_clock::SystemClock;

const FIRST_PAUSE: Duration = Duration::from_millis(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    Clear,
    /// Descendants are left: sweep again soon.
    Waiting(Pass),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pass {
    /// Processes of another user, which this one may not kill.
    pub(crate) out_of_reach: Vec<Pid>,
    /// Whether it has found all, and each that may be killed has got SIGKILL.
    pub(crate) is_complete: bool,
}

/// Kills every descendant and reaps what has ended. Never blocks.
pub(crate) fn sweep(containment: &Containment, mut on_reaped: impl FnMut(Reaped)) -> Sweep {
    loop {
        let pass = if containment.whole_namespace {
            kill_namespace();
            Pass { out_of_reach: Vec::new(), is_complete: true }
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
                Reap::NoneYet => return Sweep::Waiting(pass),
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

fn kill_descendants(containment: &Containment) -> Pass {
    let family = containment.family;
    if let Some(group) = &containment.group {
        // First, so that no process is left that forks. If it fails, the next lines kill what they find.
        let _ = group.kill();
    }
    family.kill_groups();
    let (found, is_complete) = family.search();
    let mut pass = Pass { out_of_reach: Vec::new(), is_complete };
    for member in found {
        match family.signal(member, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(Errno::PERM) => pass.out_of_reach.push(member.pid),
            Err(_) => pass.is_complete = false,
        }
    }
    pass
}

/// Kills and reaps until no descendant is left. Blocks, also for one in an uninterruptible call or of another user.
pub fn end_all(
    containment: &Containment,
    mut on_reaped: impl FnMut(Reaped),
    mut on_event: impl FnMut(SupervisionEvent),
) {
    let (mut out_of_reach_report, mut pause) = (OutOfReachReport::default(), FIRST_PAUSE);
    while let Sweep::Waiting(pass) = sweep(containment, &mut on_reaped) {
        let processes = out_of_reach_report.once(pass.out_of_reach);
        if !processes.is_empty() {
            on_event(SupervisionEvent::OutOfReach(processes));
        }
        SystemClock::block_for(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
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
