//! A worker from its start until the last process that it left behind is reaped (I6).
//!
//! Stopping is one course, whatever begins it: the command is told, has until the stop timeout or until shortly before
//! the kill deadline, whichever comes first, and what is left then is killed. What it leaves behind when it ends by
//! itself is told, and killed, in the same way.

use super::hold::Hold;
use crate::{
    containment::{Complaint, Containment, Sweep, sweep},
    processes::{Ended, Reap, Reaped, reap},
    signals::asks_to_stop,
};
use clock::{Clock, Instant};
use rustix::process::Signal;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

/// What a supervision is told from outside.
#[derive(Debug)]
pub(crate) struct Orders {
    /// A signal to pass on. `delivered`: the worker has it already.
    pub(crate) signals: broadcast::Receiver<Passed>,
    /// Stop.
    pub(crate) stop: CancellationToken,
    /// Stop waiting, and kill.
    pub(crate) kill: CancellationToken,
    /// The kill deadline, which moves with each renewal.
    pub(crate) deadline: watch::Receiver<Option<Instant>>,
    /// Rings after a child has ended.
    pub(crate) children: Arc<Notify>,
}

/// A signal on its way to the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    pub(crate) signal: Signal,
    /// The terminal has given it to the worker.
    pub(crate) delivered: bool,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Between telling to stop and killing.
    pub(crate) stop_timeout: Duration,
    /// What killing and reaping may take: this long before the kill deadline, waiting ends.
    pub(crate) killing: Duration,
}

/// What became of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Supervised {
    /// How the command itself ended.
    pub(crate) ended: Option<Ended>,
    /// Whether it ended before anything here had begun to stop it.
    pub(crate) by_itself: bool,
    /// The signals that told it to stop.
    pub(crate) told: Vec<Signal>,
}

impl Supervised {
    /// The signal that the command died of, if it asks to stop and did not come through us: a terminal or a service
    /// manager has signalled everybody, and the command was faster than the news of it.
    pub(crate) fn stopped_unasked(&self) -> Option<Signal> {
        let Some(Ended::Signalled(number)) = self.ended else { return None };
        Signal::from_named_raw(number).filter(|signal| asks_to_stop(*signal) && !self.told.contains(signal))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Working,
    Stopping { until: Instant },
    Killing,
}

/// A worker under supervision.
#[derive(Debug)]
pub(crate) struct Supervision {
    hold: Hold,
    containment: Containment,
    clock: Arc<dyn Clock>,
    patience: Patience,
    orders: Orders,
    phase: Phase,
    complaint: Complaint,
    outcome: Supervised,
}

impl Supervision {
    /// Of the worker that `hold` has hold of.
    pub(crate) fn new(
        hold: Hold,
        containment: Containment,
        clock: Arc<dyn Clock>,
        patience: Patience,
        orders: Orders,
    ) -> Self {
        let outcome = Supervised { ended: None, by_itself: false, told: Vec::new() };
        let phase = Phase::Working;
        let complaint = Complaint::default();
        Self { hold, containment, clock, patience, orders, phase, complaint, outcome }
    }

    /// Kills whatever has been started, without asking it to stop first.
    pub(crate) fn kill_at_once(mut self) -> Self {
        self.phase = Phase::Killing;
        self
    }

    /// Supervises until no descendant of this process is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it leaves processes behind that nobody stops.
    pub(crate) async fn run(mut self) -> Supervised {
        while !self.collect() {
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = self.orders.children.notified() => {}
                () = self.hold.stirs() => {}
                () = self.orders.kill.cancelled(), if self.phase != Phase::Killing => self.phase = Phase::Killing,
                // A lagging receiver has missed signals, which then merge, as pending signals do.
                Ok(passed) = self.orders.signals.recv() => self.pass_on(passed),
                () = self.orders.stop.cancelled(), if self.phase == Phase::Working => self.stop(),
                Ok(()) = self.orders.deadline.changed() => {}
                () = self.clock.sleep_until(wake_at), if self.phase != Phase::Killing => self.phase = Phase::Killing,
            }
        }
        self.outcome
    }

    /// Reaps whoever has ended; when killing, kills whoever hasn't. Whether nobody is left.
    fn collect(&mut self) -> bool {
        let worked = self.outcome.ended.is_none();
        // Before those are reaped who have said so.
        if let Some(ended) = self.hold.ended() {
            self.has_ended(ended);
        }
        if self.phase == Phase::Killing {
            let mut reaped = Vec::new();
            let state = sweep(&self.containment, |one| reaped.push(one));
            reaped.into_iter().for_each(|one| self.note(one));
            return match state {
                Sweep::Clear => true,
                Sweep::Waiting { out_of_reach } => {
                    self.complaint.about(&out_of_reach);
                    false
                }
            };
        }
        loop {
            match reap() {
                Reap::One(one) => self.note(one),
                Reap::Childless => return true,
                Reap::NoneYet => break,
            }
        }
        if worked && self.outcome.ended.is_some() {
            self.stop_leftovers();
        }
        false
    }

    fn note(&mut self, reaped: Reaped) {
        if reaped.pid == self.hold.process() {
            self.has_ended(reaped.ended);
        }
    }

    fn has_ended(&mut self, ended: Ended) {
        // Of a worker in a namespace it may have been said before how it ended.
        if self.outcome.ended.is_none() {
            self.outcome.ended = Some(ended);
            self.outcome.by_itself = self.phase == Phase::Working;
        }
    }

    /// When waiting ends. Shortly before the kill deadline in any case: nothing of the worker may see it, or the
    /// deadman would end the host, too, and with it the news of how the worker ended.
    fn wake_at(&mut self) -> Instant {
        let deadline = self.orders.deadline.borrow_and_update().unwrap_or(Instant::NEVER);
        let before_deadline = deadline.before(self.patience.killing);
        match self.phase {
            Phase::Stopping { until } => until.min(before_deadline),
            Phase::Working | Phase::Killing => before_deadline,
        }
    }

    fn pass_on(&mut self, passed: Passed) {
        if self.outcome.ended.is_none() {
            self.hold.pass_on(passed);
        }
        if asks_to_stop(passed.signal) {
            self.outcome.told.push(passed.signal);
        }
    }

    fn stop(&mut self) {
        self.begin_stopping();
        // Whoever asked for the stop by a signal has had it passed on already.
        if self.outcome.told.is_empty() {
            self.pass_on(Passed { signal: Signal::TERM, delivered: false });
        }
        // A stopped process hears no TERM before it continues.
        self.pass_on(Passed { signal: Signal::CONT, delivered: false });
    }

    /// The command has ended; what it left behind is told to, now that it has become ours.
    fn stop_leftovers(&mut self) {
        if self.phase == Phase::Working {
            self.begin_stopping();
        }
        for member in self.containment.family.descendants() {
            for signal in [Signal::TERM, Signal::CONT] {
                // Gone, or out of reach, which the killing will tell.
                let _ = self.containment.family.signal(member, signal);
            }
        }
    }

    fn begin_stopping(&mut self) {
        self.phase = Phase::Stopping { until: self.clock.now().after(self.patience.stop_timeout) };
    }
}
