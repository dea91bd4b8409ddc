//! A command from its start until the last process that it left behind is reaped (I6).
//!
//! Every stop takes the same steps, whatever begins it: the pre-stop helper, the signal, waiting until the stop timeout or
//! until shortly before the kill deadline, whichever comes first, and killing what is left. What the command leaves behind
//! when it ends by itself is told, and killed, in the same way.

pub(crate) mod alongside;
pub(crate) mod guardian_lapse;
pub(crate) mod guardian_watch;
mod hold;
pub(crate) mod not_executed;
pub(crate) mod spawn;
mod starter;
pub(crate) mod supervisor;
pub(crate) mod trigger;

use crate::{
    auxiliary::{Helper, HelperError},
    established::Containment,
    event::{Event, OnEvent},
    processes::{Ended, Reap, Reaped, reap},
    signals::{Passed, Told, asks_to_stop},
    sweep::{Complaint, Sweep, sweep},
};
use alongside::Helpers;
use hold::Hold;
use rustix::process::Signal;
use spawn::Starting;
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};

/// What a supervision is told from outside.
#[derive(Debug)]
pub struct Orders {
    /// A signal to pass on.
    pub signals: broadcast::Receiver<Told>,
    /// Stop.
    pub stop: CancellationToken,
    /// Stop waiting, and kill.
    pub kill: CancellationToken,
    /// The kill deadline, which moves with each renewal.
    pub deadline: watch::Receiver<Option<Instant>>,
    /// Rings after a child has ended.
    pub children: Arc<Notify>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct StopTimeouts {
    /// For what is to happen before the command is told to stop.
    pub pre_stop_timeout: Duration,
    /// What a command that is told to stop must have left until it is killed: what is to happen before ends earlier.
    pub least_to_stop: Duration,
    /// Between telling to stop and killing.
    pub stop_timeout: Duration,
    /// What killing and reaping may take: this long before the kill deadline, waiting ends.
    pub killing: Duration,
}

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Supervised {
    /// How the command itself ended.
    pub ended: Option<Ended>,
    /// Whether it ended before anything here had begun to stop it.
    pub by_itself: bool,
    /// The signals that told it to stop.
    pub told: Vec<Signal>,
}

impl Supervised {
    /// The signal that the command died of, if it may ask to stop and did not come through us: a terminal, a shell or a
    /// service manager has signalled all processes, and the command was faster than the news of it.
    pub fn stopped_unasked(&self) -> Option<Signal> {
        let Some(Ended::Signalled(number)) = self.ended else { return None };
        let may_ask = |signal: &Signal| asks_to_stop(*signal) || *signal == Signal::HUP;
        Signal::from_named_raw(number).filter(|signal| may_ask(signal) && !self.told.contains(signal))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Working,
    /// It has not been told yet.
    PreStopping {
        until: Instant,
    },
    Stopping {
        until: Instant,
    },
    Killing,
}

/// What is to happen before the command is told to stop.
type PreStop = Pin<Box<dyn Future<Output = Result<Ended, HelperError>> + Send>>;

async fn pre_stop_of(running: &mut Option<PreStop>) -> Result<Ended, HelperError> {
    match running {
        Some(running) => running.await,
        None => std::future::pending().await,
    }
}

/// A command under supervision.
#[derive(Debug)]
pub struct Supervision {
    hold: Hold,
    helpers: Arc<Helpers>,
    containment: Containment,
    on_event: OnEvent,
    clock: Arc<dyn Clock>,
    timeouts: StopTimeouts,
    orders: Orders,
    phase: Phase,
    /// What it is told once it is to stop.
    held: Vec<Passed>,
    complaint: Complaint,
    outcome: Supervised,
}

impl Supervision {
    /// Of a command that has been [started](spawn::start), with what runs beside it.
    pub fn of(starting: Starting, clock: Arc<dyn Clock>, timeouts: StopTimeouts, orders: Orders) -> Self {
        let Starting { hold, helpers, containment, on_event, .. } = starting;
        let outcome = Supervised { ended: None, by_itself: false, told: Vec::new() };
        let phase = Phase::Working;
        let complaint = Complaint::default();
        let held = Vec::new();
        Self {
            hold,
            helpers,
            containment,
            on_event,
            clock,
            timeouts,
            orders,
            phase,
            held,
            complaint,
            outcome,
        }
    }

    /// Kills whatever has been started, without asking it to stop first.
    pub fn kill_at_once(mut self) -> Self {
        self.phase = Phase::Killing;
        self
    }

    /// What runs beside the command.
    pub fn helpers(&self) -> Arc<Helpers> {
        Arc::clone(&self.helpers)
    }

    /// Supervises until no descendant of this process is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it leaves processes behind that nobody stops.
    pub async fn run(mut self) -> Supervised {
        // Dropped, it kills what it has started.
        let mut pre_stop = None;
        while !self.collect() {
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = self.orders.children.notified() => {}
                () = self.hold.stirs() => {}
                () = self.orders.kill.cancelled(), if self.phase != Phase::Killing => self.phase = Phase::Killing,
                // A lagging receiver has missed signals, which then merge, as pending signals do.
                Ok(Told { passed, asks }) = self.orders.signals.recv() => self.pass_on(passed, asks),
                () = self.orders.stop.cancelled(), if self.phase == Phase::Working => pre_stop = self.stop(),
                outcome = pre_stop_of(&mut pre_stop), if self.is_pre_stopping() => {
                    pre_stop = None;
                    self.tell_after(outcome);
                }
                Ok(()) = self.orders.deadline.changed() => {}
                () = self.clock.sleep_until(wake_at), if self.phase != Phase::Killing => {
                    if self.is_pre_stopping() {
                        pre_stop = None;
                        self.tell_after(Err(HelperError::TooLong));
                    } else {
                        self.phase = Phase::Killing;
                    }
                }
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
                    if let Some(event) = self.complaint.about(out_of_reach) {
                        self.on_event.report(event);
                    }
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
        } else {
            self.helpers.note(reaped.pid, reaped.ended);
        }
    }

    fn has_ended(&mut self, ended: Ended) {
        // Of a worker in a namespace it may have been said before how it ended.
        if self.outcome.ended.is_none() {
            self.outcome.ended = Some(ended);
            // Whoever was told may be gone before the order to stop has come to us.
            self.outcome.by_itself = self.phase == Phase::Working && self.outcome.told.is_empty();
        }
    }

    /// When waiting ends. Shortly before the kill deadline in any case: nothing of the worker may see it, or the
    /// deadman would end the host, too, and with it the news of how the worker ended (I4).
    fn wake_at(&mut self) -> Instant {
        let deadline = self.orders.deadline.borrow_and_update().unwrap_or(Instant::NEVER);
        let before_deadline = deadline.before(self.timeouts.killing);
        match self.phase {
            Phase::PreStopping { until } => until.min(before_deadline.before(self.timeouts.least_to_stop)),
            Phase::Stopping { until } => until.min(before_deadline),
            Phase::Working | Phase::Killing => before_deadline,
        }
    }

    fn is_pre_stopping(&self) -> bool {
        matches!(self.phase, Phase::PreStopping { .. })
    }

    fn pass_on(&mut self, passed: Passed, asks: bool) {
        if asks {
            self.outcome.told.push(passed.signal);
        }
        let comes_first = self.phase == Phase::Working && self.helpers.has(Helper::PreStop);
        if asks && !passed.delivered && (comes_first || self.is_pre_stopping()) {
            self.held.push(passed);
        } else if self.outcome.ended.is_none() && !self.containment.is_closed() {
            self.hold.pass_on(passed, &self.on_event);
        }
    }

    /// Begins to stop the command: with what is to happen before it is told, if anything is.
    fn stop(&mut self) -> Option<PreStop> {
        if !self.helpers.has(Helper::PreStop) {
            self.tell();
            return None;
        }
        let now = self.clock.now();
        self.phase = Phase::PreStopping { until: now.after(self.timeouts.pre_stop_timeout) };
        if self.wake_at() <= now {
            self.on_event.report(Event::NoTimeForPreStop);
            self.tell();
            return None;
        }
        let (helpers, clock) = (Arc::clone(&self.helpers), Arc::clone(&self.clock));
        // When its time is over is seen to by the phase: the kill deadline moves.
        Some(Box::pin(async move { helpers.run(Helper::PreStop, &clock, Instant::NEVER).await }))
    }

    /// Tells the command to stop, after what was to happen before.
    fn tell_after(&mut self, pre_stop: Result<Ended, HelperError>) {
        match pre_stop {
            Ok(Ended::Exited(0)) => {}
            outcome => self.on_event.report(Event::PreStopFailed(outcome)),
        }
        self.tell();
    }

    fn tell(&mut self) {
        self.begin_stopping();
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|passed| self.hold.pass_on(passed, &self.on_event));
        // Whoever asked for the stop by a signal has had it passed on already.
        if self.outcome.told.is_empty() {
            self.pass_on(Passed { signal: Signal::TERM, delivered: false }, true);
        }
        // A stopped process hears no TERM before it continues.
        self.pass_on(Passed { signal: Signal::CONT, delivered: false }, false);
    }

    /// The command has ended; what it left behind is told to, now that it has become ours.
    fn stop_leftovers(&mut self) {
        if self.phase == Phase::Working || self.is_pre_stopping() {
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
        self.phase = Phase::Stopping { until: self.clock.now().after(self.timeouts.stop_timeout) };
    }
}
