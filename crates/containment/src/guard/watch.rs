//! [`Guarding`]: the guardian's loop, and the clean-up at its end.

use super::{
    Report,
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
    sweep::{Sweep, end_all, sweep},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal},
};
use std::{os::fd::OwnedFd, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How long a supervisor that has finished may take to end, and as long again after it is killed. Only a
/// thread that hangs in a system call takes longer.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The pause between two looks for remaining processes.
const LOOK: Duration = Duration::from_millis(20);

/// A running guardian.
#[derive(Debug)]
pub(super) struct Guarding {
    pub(super) supervisor: Pid,
    /// Readable once the supervisor has ended. Unlike SIGCHLD, the parent of this process can't block it.
    pub(super) process: OwnedFd,
    pub(super) link: Link<ToSupervisor, ToGuardian>,
    pub(super) link_open: bool,
    pub(super) containment: Containment,
    pub(super) signals: Signals,
    pub(super) terminal: Terminal,
    pub(super) countdown: Countdown,
    /// The supervisor's last deadline.
    pub(super) deadline: Option<Instant>,
    /// When the supervisor is killed because it has finished and does not end.
    pub(super) kill_at: Option<Instant>,
}

/// How a supervisor ended.
#[derive(Debug)]
pub struct Ended {
    /// The containment that was in force.
    pub level: Level,
    /// How its process ended. `None` if a thread of it hangs in the kernel: it was left behind, after it had
    /// finished and disarmed its deadline.
    pub supervisor: Option<processes::Ended>,
    /// When it was reaped or left behind.
    pub reaped_at: Instant,
    /// Its last kill deadline.
    pub deadline: Option<Instant>,
    /// Whether it outlived its deadline, and had to be killed.
    pub deadline_passed: bool,
    /// Whether every descendant is proven to have ended: `wait` has returned ECHILD, and the control group,
    /// if there is one, was removed.
    pub proven: bool,
}

impl Guarding {
    /// Watches until the supervisor has ended or is overdue; then kills and reaps every descendant.
    pub(super) fn watch(mut self, mut on_report: impl FnMut(Report)) -> Ended {
        let mut ended = None;
        while ended.is_none() && !self.is_due() {
            self.wait();
            // First, because the deadline may have moved while this process did not run.
            self.listen(&mut on_report);
            self.forward_signals();
            // Always: a sub-reaper, or process 1, may be given other processes' children at any time.
            while let Reap::One(reaped) = reap() {
                ended = ended.or(self.is_supervisor(reaped));
            }
        }
        let deadline_passed = has_passed(self.deadline);
        let is_supervisor = |reaped: Reaped| self.is_supervisor(reaped);
        let left_behind = ended.is_none()
            && self.may_leave()
            && self.end_others(|reaped| ended = ended.or(is_supervisor(reaped)));
        if left_behind {
            on_report(Report::Event(Event::LeftBehind(self.supervisor)));
        } else {
            end_all(
                &self.containment,
                |reaped| ended = ended.or(is_supervisor(reaped)),
                |event| on_report(Report::Event(event)),
            );
        }
        let is_dissolved = self.containment.remove_group();
        // The last messages may have arrived while the supervisor was ending.
        self.listen(&mut on_report);
        let (supervisor, reaped_at) = ended.unzip();
        // Without a child, the supervisor is among those reaped.
        Ended {
            level: self.containment.level(),
            supervisor: supervisor.or((!left_behind).then_some(processes::Ended::Exited(0))),
            reaped_at: reaped_at.unwrap_or_else(SystemClock::read),
            deadline: self.deadline,
            deadline_passed,
            proven: is_dissolved && !left_behind,
        }
    }

    /// Whether to kill now: the deadline has passed, or the supervisor has finished and does not end.
    fn is_due(&self) -> bool {
        has_passed(self.deadline.map(Countdown::expires_at)) || has_passed(self.kill_at)
    }

    /// Whether the supervisor may be left behind: it has finished, and no deadline is armed (I6).
    fn may_leave(&self) -> bool {
        self.kill_at.is_some() && self.deadline.is_none()
    }

    /// Kills all descendants, and reaps until only the supervisor is left and has not ended in time. Returns
    /// false if it has ended.
    fn end_others(&self, mut on_reaped: impl FnMut(Reaped)) -> bool {
        let leave_at = SystemClock::read().after(ENDS_WITHIN);
        while sweep(&self.containment, &mut on_reaped) != Sweep::Clear {
            let is_alone = || {
                let left = self.containment.family.descendants();
                left.iter().all(|member| member.pid == self.supervisor)
            };
            if has_passed(Some(leave_at)) && is_alone() {
                return true;
            }
            let pause = Timespec::try_from(LOOK).ok();
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], pause.as_ref());
        }
        false
    }

    fn is_supervisor(&self, reaped: Reaped) -> Option<(processes::Ended, Instant)> {
        (reaped.pid == self.supervisor).then(|| (reaped.ended, SystemClock::read()))
    }

    /// Blocks until a deadline passes, a signal or a message arrives, or the supervisor ends.
    fn wait(&self) {
        let mut fds = [
            PollFd::new(&self.countdown, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::new(&self.link, PollFlags::IN),
        ];
        // A closed link is always readable.
        let polled = if self.link_open { &mut fds[..] } else { &mut fds[..3] };
        let left = self.kill_at.map(|at| SystemClock::read().until(at));
        let longest = left.and_then(|left| Timespec::try_from(left).ok());
        // After an error, the caller looks at everything as well.
        let _ = poll(polled, longest.as_ref());
    }

    fn listen(&mut self, on_report: &mut impl FnMut(Report)) {
        while self.link_open {
            match self.link.receive() {
                Some(link::Received::Message(message, _)) => self.handle(message, on_report),
                Some(link::Received::End) => self.link_open = false,
                None => return,
            }
        }
    }

    fn handle(&mut self, message: ToGuardian, on_report: &mut impl FnMut(Report)) {
        match message {
            ToGuardian::Note(note) => on_report(Report::Note(note)),
            ToGuardian::Deadline(deadline) => {
                self.deadline = deadline;
                match self.countdown.set(deadline) {
                    // A supervisor that does not receive this starts no work.
                    Ok(()) => drop(self.link.send(&ToSupervisor::InForce(deadline))),
                    Err(refusal) => on_report(Report::Event(Event::TimerRefused(refusal))),
                }
            }
            ToGuardian::Finished => self.kill_at = Some(SystemClock::read().after(ENDS_WITHIN)),
        }
    }

    fn forward_signals(&mut self) {
        for caught in self.signals.pending().unwrap_or_default() {
            match caught.signal {
                // The caller reaps in any case.
                Signal::CHILD => {}
                Signal::TSTP => self.terminal.undo_stop(),
                signal => {
                    let source = self.terminal.source_of(caught);
                    // A supervisor that does not receive it hangs, and its deadline ends it.
                    let _ = self.link.send(&ToSupervisor::Signalled { signal, source });
                }
            }
        }
    }
}

fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| SystemClock::read() >= at)
}
