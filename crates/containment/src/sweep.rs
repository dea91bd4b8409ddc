//! Killing until none is left.
//!
//! One pass kills everybody it can see and reaps everybody who has ended, and starts over as long as it reaped any,
//! because a dead parent's children have become ours by then. When a pass reaps nobody, each of our children has been
//! sent SIGKILL, so that an end is sure to come, and a next pass after it.

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
    let family = containment.family;
    loop {
        if let Some(group) = &containment.group {
            // First, so that nobody is left who forks. Where it fails, the next few lines do what they can.
            let _ = group.kill();
        }
        family.kill_groups();
        let mut out_of_reach = Vec::new();
        for member in family.descendants() {
            if family.signal(member, Signal::KILL) == Err(Errno::PERM) {
                out_of_reach.push(member.pid);
            }
        }
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

/// Kills every descendant, reaps, and returns once none is left.
///
/// Blocks; a process in an uninterruptible system call, or of a user out of reach, is waited for.
pub fn end_all(
    containment: &Containment,
    mut on_reaped: impl FnMut(Reaped),
    mut on_event: impl FnMut(Event),
) {
    let mut complaint = Complaint::default();
    while let Sweep::Waiting { out_of_reach } = sweep(containment, &mut on_reaped) {
        complaint.about(out_of_reach).map(&mut on_event);
        wait_for_any();
    }
}

/// What is reported about processes that can't be killed: once.
#[derive(Default, Debug)]
pub(crate) struct Complaint {
    reported: bool,
}

impl Complaint {
    /// Which processes are waited for, unless that was reported before.
    pub(crate) fn about(&mut self, out_of_reach: Vec<Pid>) -> Option<Event> {
        let is_new = !out_of_reach.is_empty() && !std::mem::replace(&mut self.reported, true);
        is_new.then_some(Event::OutOfReach(out_of_reach))
    }
}
