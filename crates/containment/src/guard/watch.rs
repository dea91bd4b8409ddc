//! The loop that a guardian spends its life in, and what it does at the end of it.

use super::{
    Heard,
    countdown::Countdown,
    message::{ToGuardian, ToSupervisor},
    terminal::Terminal,
};
use crate::{
    established::Containment,
    event::Event,
    level::Level,
    link::{self, Link},
    processes::{self, Reap, Reaped, reap},
    signals::Signals,
    sweep::end_all,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal},
};
use std::os::fd::OwnedFd;
use vvm_clock::{Instant, SystemClock};

/// A guardian at work.
#[derive(Debug)]
pub(super) struct Guarding {
    pub(super) supervisor: Pid,
    /// Readable once the supervisor has ended: independent of SIGCHLD, which the starter of this process may
    /// have blocked.
    pub(super) process: OwnedFd,
    pub(super) link: Link<ToSupervisor, ToGuardian>,
    pub(super) link_open: bool,
    pub(super) containment: Containment,
    pub(super) signals: Signals,
    pub(super) terminal: Terminal,
    pub(super) countdown: Countdown,
    /// What the supervisor said last.
    pub(super) deadline: Option<Instant>,
}

/// How the supervisor ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// What held the command's processes.
    pub level: Level,
    /// Like this.
    pub supervisor: processes::Ended,
    /// When it was reaped.
    pub reaped_at: Instant,
    /// The kill deadline that it said last.
    pub deadline: Option<Instant>,
    /// Whether it outlived its deadline, so that whatever killed it was right.
    pub deadline_passed: bool,
}

impl Guarding {
    /// Watches until the supervisor has ended or is overdue; then kills and reaps every descendant.
    pub(super) fn watch(mut self, mut on_heard: impl FnMut(Heard)) -> Ended {
        let mut ended = None;
        while ended.is_none() && !has_passed(self.deadline.map(Countdown::rings_at)) {
            self.wait();
            // First, since the deadline may have moved while this process did not run.
            self.listen(&mut on_heard);
            self.pass_signals_on();
            // Always: a sub-reaper, or process 1, may be given other processes' children at any time.
            while let Reap::One(reaped) = reap() {
                ended = ended.or(self.is_supervisor(reaped));
            }
        }
        let deadline_passed = has_passed(self.deadline);
        end_all(
            &self.containment,
            |reaped| ended = ended.or(self.is_supervisor(reaped)),
            |event| on_heard(Heard::Event(event)),
        );
        self.containment.dissolve();
        // What the supervisor said last may have come while it was ending.
        self.listen(&mut on_heard);
        // No child is left, so the supervisor was among those reaped; if the kernel lost it, it was not by a
        // kill of ours.
        let (supervisor, reaped_at) = ended.unwrap_or((processes::Ended::Exited(0), SystemClock::read()));
        Ended {
            level: self.containment.level(),
            supervisor,
            reaped_at,
            deadline: self.deadline,
            deadline_passed,
        }
    }

    fn is_supervisor(&self, reaped: Reaped) -> Option<(processes::Ended, Instant)> {
        (reaped.pid == self.supervisor).then(|| (reaped.ended, SystemClock::read()))
    }

    /// Blocks until there is something to do: the deadline, signals, the supervisor's end, the link.
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

    fn listen(&mut self, on_heard: &mut impl FnMut(Heard)) {
        while self.link_open {
            match self.link.hear() {
                Some(link::Heard::Message(ToGuardian::Note(note), _)) => on_heard(Heard::Note(note)),
                Some(link::Heard::Message(ToGuardian::Deadline(deadline), _)) => {
                    self.deadline = deadline;
                    match self.countdown.set(deadline) {
                        // A supervisor that never hears this starts no work.
                        Ok(()) => {
                            let _ = self.link.say(&ToSupervisor::InForce(deadline));
                        }
                        Err(refusal) => on_heard(Heard::Event(Event::TimerRefused(refusal))),
                    }
                }
                Some(link::Heard::End) => self.link_open = false,
                None => return,
            }
        }
    }

    fn pass_signals_on(&mut self) {
        for caught in self.signals.pending().unwrap_or_default() {
            match caught.signal {
                // Reaping happens in any case.
                Signal::CHILD => {}
                Signal::TSTP => self.terminal.undo_stop(),
                signal => {
                    let source = self.terminal.source_of(caught);
                    // A supervisor that does not listen can't act on it either; its deadline is what ends it.
                    let _ = self.link.say(&ToSupervisor::Signalled { signal, source });
                }
            }
        }
    }
}

fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| SystemClock::read() >= at)
}
