//! The loop that a guardian spends its life in, and what it does at the end of it.

use super::{countdown::Countdown, terminal::Terminal};
use crate::{
    announce::say,
    containment::{Containment, Level, end_all},
    link::{
        Heard, Link,
        message::{Farewell, ToGuardian, ToHost},
    },
    processes::{Ended, Reap, Reaped, reap},
    service_manager::ServiceManager,
    signals::Signals,
};
use ielections::{Epoch, Incarnation};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal},
};
use std::os::fd::OwnedFd;
use vvm_clock::{Instant, SystemClock};

/// A guardian at work.
#[derive(Debug)]
pub(super) struct Guardian {
    pub(super) host: Pid,
    /// Readable once the host has ended: independent of SIGCHLD, which whoever started us may have blocked.
    pub(super) process: OwnedFd,
    pub(super) link: Link<ToHost, ToGuardian>,
    pub(super) link_open: bool,
    pub(super) containment: Containment,
    pub(super) signals: Signals,
    pub(super) terminal: Terminal,
    pub(super) countdown: Countdown,
    pub(super) manager: Option<ServiceManager>,
    pub(super) told: Told,
}

/// What the host has said, for the end.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Told {
    pub(super) deadline: Option<Instant>,
    pub(super) leading: Option<Leading>,
    pub(super) farewell: Option<Farewell>,
}

/// The leadership that the host held last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leading {
    pub(super) slot: u32,
    pub(super) epoch: Epoch,
    pub(super) incarnation: Incarnation,
}

/// How the host ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// What held the worker's processes.
    pub(super) level: Level,
    pub(super) told: Told,
    /// Whether the host outlived its deadline, so that whatever killed it was right.
    pub(super) deadline_passed: bool,
    pub(super) host: Ended,
    /// When it was reaped.
    pub(super) reaped_at: Instant,
}

impl Guardian {
    /// Watches until the host has ended or is overdue; then kills and reaps every descendant.
    pub(super) fn watch(mut self) -> End {
        let mut host_ended = None;
        while host_ended.is_none() && !has_passed(self.told.deadline.map(Countdown::rings_at)) {
            self.wait();
            // First, since the deadline may have moved while we did not run.
            self.listen();
            self.pass_signals_on();
            // Always: as a sub-reaper, or as process 1, we may be given strangers' children at any time.
            while let Reap::One(reaped) = reap() {
                host_ended = host_ended.or(self.is_host(reaped));
            }
        }
        let deadline_passed = has_passed(self.told.deadline);
        end_all(&self.containment, |reaped| host_ended = host_ended.or(self.is_host(reaped)));
        self.containment.dissolve();
        // What the host said last may have come while it was ending.
        self.listen();
        // Nobody is left to reap, so the host was among those reaped; if the kernel lost it, it was not by our kill.
        let (host, reaped_at) = host_ended.unwrap_or((Ended::Exited(0), SystemClock::read()));
        End { level: self.containment.level, told: self.told, deadline_passed, host, reaped_at }
    }

    fn is_host(&self, reaped: Reaped) -> Option<(Ended, Instant)> {
        (reaped.pid == self.host).then(|| (reaped.ended, SystemClock::read()))
    }

    /// Blocks until there is something to do: the deadline, signals, the host's end, the link.
    fn wait(&self) {
        let mut fds = [
            PollFd::new(&self.countdown, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::new(&self.link, PollFlags::IN),
        ];
        // A link that has ended would wake for ever.
        let of_interest = if self.link_open { &mut fds[..] } else { &mut fds[..3] };
        // Interrupted, out of memory: looking at everything is right after each of them.
        let _ = poll(of_interest, None);
    }

    fn listen(&mut self) {
        while self.link_open {
            match self.link.hear() {
                Some(Heard::Message(message, _)) => self.note(message),
                Some(Heard::End) => self.link_open = false,
                None => return,
            }
        }
    }

    fn note(&mut self, message: ToGuardian) {
        match message {
            ToGuardian::Deadline(deadline) => {
                self.told.deadline = deadline;
                match self.countdown.set(deadline) {
                    // A host that never hears this starts no work.
                    Ok(()) => {
                        let _ = self.link.say(&ToHost::InForce(deadline));
                    }
                    Err(refusal) => say!("the guardian's timer can't be set: {refusal}"),
                }
            }
            ToGuardian::Leading { slot, epoch, incarnation } => {
                self.told.leading = Some(Leading { slot, epoch, incarnation });
            }
            ToGuardian::Stands(stands) => {
                if let Some(manager) = &mut self.manager {
                    manager.tell(stands);
                }
            }
            ToGuardian::Farewell(farewell) => self.told.farewell = Some(farewell),
        }
    }

    fn pass_signals_on(&mut self) {
        for caught in self.signals.pending().unwrap_or_default() {
            match caught.signal {
                // Reaping happens in any case.
                Signal::CHILD => {}
                Signal::TSTP => self.terminal.undo_stop(),
                signal => {
                    let delivered = caught.from_terminal && self.terminal.reaches_the_worker();
                    // A host that does not listen can't act on it either; its deadline is what ends it.
                    let _ = self.link.say(&ToHost::Signalled { signal, delivered });
                }
            }
        }
    }
}

fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| SystemClock::read() >= at)
}
