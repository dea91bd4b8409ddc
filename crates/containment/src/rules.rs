//! What keeper, supervisor and guardian decide about the end of a command, as values without I/O: the processes ask
//! them, and `cargo xtask check` asks them in all orders of events.

use std::time::Duration;
use vvm_clock::Instant;
use vvm_deadman::SECOND_LAYER_BEHIND;

/// What a keeper has learnt, or done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeeperEvent {
    /// The supervisor has moved the kill deadline.
    Deadline(Option<Instant>),
    /// The supervisor has ordered to kill.
    Kill,
    /// The link to the supervisor has closed.
    LinkClosed,
    /// The guardian's process has ended.
    GuardianEnded,
    /// The command could not be started.
    NotStarted,
    /// It has received all messages.
    Turn(Instant),
    /// It has looked for all processes, and whether each has got SIGKILL that it may kill.
    Swept(Instant, bool),
}

/// What a keeper does then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeeperAction {
    /// Sets its own timer, which kills it, and then confirms the deadline.
    Arm(Option<Instant>),
    /// Stops its own timer.
    Disarm,
    /// Confirms the order to kill.
    ConfirmKill,
    /// Kills all processes that it finds.
    Sweep,
}

/// When a keeper kills, and when its own timer kills it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeeperRules {
    deadline: Option<Instant>,
    /// How long before it the keeper kills without an order. A running supervisor orders it earlier, so this is
    /// for a stopped one. The keeper has this time and [`SECOND_LAYER_BEHIND`] before its own timer kills it.
    before_the_deadline: Duration,
    has_supervisor: bool,
    killing: bool,
}

impl KeeperRules {
    /// Returns those of a keeper without a deadline.
    pub fn new(before_the_deadline: Duration) -> Self {
        Self { deadline: None, before_the_deadline, has_supervisor: true, killing: false }
    }

    /// Takes what has happened, and returns what the keeper does then.
    pub fn on(&mut self, event: KeeperEvent) -> Option<KeeperAction> {
        match event {
            KeeperEvent::Deadline(deadline) => {
                self.deadline = deadline;
                // As far behind the deadline as the supervisor's second layer: when the supervisor dies at its
                // deadline, the keeper must still run to kill the command.
                Some(KeeperAction::Arm(deadline.map(|at| at.after(SECOND_LAYER_BEHIND))))
            }
            KeeperEvent::Kill => {
                self.killing = true;
                Some(KeeperAction::ConfirmKill)
            }
            KeeperEvent::LinkClosed => {
                self.has_supervisor = false;
                None
            }
            KeeperEvent::GuardianEnded | KeeperEvent::NotStarted => {
                self.killing = true;
                None
            }
            KeeperEvent::Turn(now) => {
                self.killing |= self.acts_alone(now);
                self.killing.then_some(KeeperAction::Sweep)
            }
            // Each has got SIGKILL. The keeper must live until they have ended. After a pass that found nothing for
            // want of a descriptor, only the keeper's timer may be left to end the command in time (I4).
            KeeperEvent::Swept(now, is_complete) => {
                (is_complete && self.acts_alone(now)).then_some(KeeperAction::Disarm)
            }
        }
    }

    /// Whether it kills without an order: no supervisor is left to give one, or the deadline is near.
    fn acts_alone(&self, now: Instant) -> bool {
        !self.has_supervisor || self.due().is_some_and(|due| now >= due)
    }

    fn due(&self) -> Option<Instant> {
        self.deadline.map(|deadline| deadline.before(self.before_the_deadline))
    }

    /// Returns when it has to look at the time again. `None` if it kills already, or has no deadline.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.due().filter(|_| !self.killing)
    }

    /// Returns the kill deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the link to the supervisor is open.
    pub fn has_supervisor(&self) -> bool {
        self.has_supervisor
    }

    /// Whether it kills.
    pub fn is_killing(&self) -> bool {
        self.killing
    }

    /// Whether nothing is left (I6). As a sub-reaper, or process 1, a process without a child has no descendant. A
    /// member of the control group that is no descendant can start none.
    pub fn is_over(is_childless: bool, has_no_member: impl FnOnce() -> bool) -> bool {
        is_childless && has_no_member()
    }
}

/// Whether the end of a keeper proves to its supervisor that nothing is left (I6): it has said so, or was never
/// ready to start something. At level pidns the keeper's end is that of the process outside, and process 1 is ready only
/// once it ends with that one (`namespace`).
pub fn is_proven(was_ready: bool, said_gone: bool) -> bool {
    said_gone || !was_ready
}

/// The time after the supervisor's deadline: twice that of its second layer, so that its end can still be logged.
pub(crate) const BEHIND_THE_SUPERVISOR: Duration = SECOND_LAYER_BEHIND.saturating_mul(2);

/// How long a finished supervisor may take to end, and again once killed. Only a hang in a system call takes longer.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// When a guardian kills, and whether it may end before its supervisor.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct GuardianRules {
    deadline: Option<Instant>,
    kill_at: Option<Instant>,
}

impl GuardianRules {
    /// The deadline moved. Returns when the guardian's timer expires for it. The timer wakes the guardian and does not
    /// kill it: process 1 ignores kill timers, and after a suspend both would be due at once and leave the command's
    /// processes behind. A supervisor notices a guardian that is stopped or hangs ([`lapsed`](crate::lapsed)).
    pub fn moves(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        self.deadline = deadline;
        self.expires_at()
    }

    fn expires_at(&self) -> Option<Instant> {
        self.deadline.map(|at| at.after(BEHIND_THE_SUPERVISOR))
    }

    /// The supervisor has nothing left to do.
    pub fn finished(&mut self, now: Instant) {
        self.kill_at = Some(now.after(ENDS_WITHIN));
    }

    /// Whether to kill now: the deadline has passed, or the supervisor has finished and does not end.
    pub fn is_due(&self, now: Instant) -> bool {
        has_passed(self.expires_at(), now) || has_passed(self.kill_at, now)
    }

    /// Whether the supervisor may be left behind: it has finished, and no deadline is armed (I6).
    pub fn may_leave(&self) -> bool {
        self.kill_at.is_some() && self.deadline.is_none()
    }

    /// Whether it is proven that nothing is left (I6): all is reaped, the supervisor too, and any group is removed.
    pub fn is_proven(left_behind: bool, is_dissolved: bool) -> bool {
        is_dissolved && !left_behind
    }

    /// Returns the supervisor's last deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns when a supervisor that has finished is killed.
    pub fn kill_at(&self) -> Option<Instant> {
        self.kill_at
    }
}

fn has_passed(deadline: Option<Instant>, now: Instant) -> bool {
    deadline.is_some_and(|at| now >= at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows I6.
    #[test]
    fn supervisor_is_left_behind_only_if_it_has_finished_and_disarmed_its_deadline() {
        let at = Instant::ORIGIN.after(ENDS_WITHIN);
        let mut rules = GuardianRules::default();
        assert!(!rules.may_leave());
        rules.moves(Some(at));
        rules.finished(at);
        assert!(!rules.may_leave());
        assert_eq!(rules.deadline(), Some(at));
        rules.moves(None);
        assert!(rules.may_leave());
    }
}
