//! A command from its start until the last process that it left behind is reaped (I6).
//!
//! Every stop takes the same steps, whatever begins it: the pre-stop helper, the signal, waiting until the
//! stop timeout or until shortly before the kill deadline, whichever comes first, and killing what is left.
//! What the command leaves behind when it ends by itself is told, and killed, in the same way.

pub(crate) mod alongside;
pub(crate) mod guardian_lapse;
pub(crate) mod guardian_watch;
pub(crate) mod keeper_handle;
pub(crate) mod not_executed;
pub(crate) mod spawn;
pub(crate) mod supervisor;
pub(crate) mod trigger;

use crate::{
    auxiliary::{Helper, HelperError},
    event::{Event, OnEvent},
    processes::Ended,
    signals::{Passed, Told, asks_to_stop},
};
use alongside::Helpers;
use keeper_handle::{KeeperHandle, Unproven};
use rustix::process::Signal;
use spawn::Starting;
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};

/// How long a keeper that is told to kill may take to say that it has heard so. Far above what a busy machine
/// needs; only a keeper that hangs takes longer, and until it is given up the command's lease is renewed as
/// before.
const KEEPER_ANSWERS: Duration = Duration::from_secs(5);

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
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct StopTimeouts {
    /// For what is to happen before the command is told to stop.
    pub pre_stop_timeout: Duration,
    /// What a command that is told to stop must have left until it is killed: what is to happen before ends
    /// earlier.
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
    /// The signal that the command died of, if it may ask to stop and did not come through us: a terminal, a
    /// shell or a service manager has signalled all processes, and the command was faster than the news of
    /// it.
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
    Killing {
        /// When a keeper that has not heard of it is given up.
        answer_by: Instant,
    },
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
    keeper: KeeperHandle,
    helpers: Arc<Helpers>,
    on_event: OnEvent,
    clock: Arc<dyn Clock>,
    timeouts: StopTimeouts,
    orders: Orders,
    phase: Phase,
    /// What it is told once it is to stop.
    held: Vec<Passed>,
    outcome: Supervised,
}

impl Supervision {
    /// Of a command that has been [started](spawn::start), with what runs beside it.
    pub fn of(starting: Starting, clock: Arc<dyn Clock>, timeouts: StopTimeouts, orders: Orders) -> Self {
        let Starting { keeper, helpers, on_event, .. } = starting;
        let outcome = Supervised { ended: None, by_itself: false, told: Vec::new() };
        let phase = Phase::Working;
        let held = Vec::new();
        Self { keeper, helpers, on_event, clock, timeouts, orders, phase, held, outcome }
    }

    /// Kills whatever has been started, without asking it to stop first.
    pub fn kill_at_once(mut self) -> Self {
        self.begin_killing();
        self
    }

    /// What runs beside the command.
    pub fn helpers(&self) -> Arc<Helpers> {
        Arc::clone(&self.helpers)
    }

    /// Supervises until the keeper has proven that nothing of the command is left.
    ///
    /// # Errors
    /// [`Unproven`] when the keeper has died: processes of the command may still run.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it has everything killed by the keeper, which nothing waits for then.
    pub async fn run(mut self) -> Result<Supervised, Unproven> {
        // Dropped, it kills what it has started.
        let mut pre_stop = None;
        loop {
            self.collect();
            if let Some(proof) = self.keeper.proof() {
                return proof.map(|()| self.outcome);
            }
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = self.keeper.stirs() => {}
                () = self.orders.kill.cancelled(), if !self.is_killing() => self.begin_killing(),
                // A lagging receiver has missed signals, which then merge, as pending signals do.
                Ok(Told { passed, asks }) = self.orders.signals.recv() => self.pass_on(passed, asks),
                () = self.orders.stop.cancelled(), if self.phase == Phase::Working => pre_stop = self.stop(),
                outcome = pre_stop_of(&mut pre_stop), if self.is_pre_stopping() => {
                    pre_stop = None;
                    self.tell_after(outcome);
                }
                Ok(()) = self.orders.deadline.changed() => {}
                () = self.clock.sleep_until(wake_at) => match self.phase {
                    Phase::PreStopping { .. } => {
                        pre_stop = None;
                        self.tell_after(Err(HelperError::TooLong));
                    }
                    Phase::Working | Phase::Stopping { .. } => self.begin_killing(),
                    Phase::Killing { .. } => {
                        self.phase = Phase::Killing { answer_by: Instant::NEVER };
                        self.keeper.give_up();
                    }
                }
            }
        }
    }

    /// Notes what the keeper has said.
    fn collect(&mut self) {
        if let Some(ended) = self.keeper.command_ended()
            && self.outcome.ended.is_none()
        {
            self.has_ended(ended);
            if !self.is_killing() {
                self.stop_leftovers();
            }
        }
    }

    fn has_ended(&mut self, ended: Ended) {
        self.outcome.ended = Some(ended);
        // The sender of a signal may be gone before the order to stop has come here.
        self.outcome.by_itself = self.phase == Phase::Working && self.outcome.told.is_empty();
    }

    /// When waiting ends. Shortly before the kill deadline in any case: nothing of the worker may see it, or
    /// the deadman would end the host, too, and with it the news of how the worker ended (I4).
    fn wake_at(&mut self) -> Instant {
        let deadline = self.orders.deadline.borrow_and_update().unwrap_or(Instant::NEVER);
        let before_deadline = deadline.before(self.timeouts.killing);
        match self.phase {
            Phase::PreStopping { until } => until.min(before_deadline.before(self.timeouts.least_to_stop)),
            Phase::Stopping { until } => until.min(before_deadline),
            Phase::Working => before_deadline,
            Phase::Killing { .. } if self.keeper.kills() => Instant::NEVER,
            Phase::Killing { answer_by } => answer_by,
        }
    }

    fn is_killing(&self) -> bool {
        matches!(self.phase, Phase::Killing { .. })
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
        } else if self.outcome.ended.is_none() {
            self.keeper.pass_on(passed);
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
        held.into_iter().for_each(|passed| self.keeper.pass_on(passed));
        // A stop that a signal asked for has passed that signal on already.
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
        self.keeper.tell_rest();
    }

    fn begin_killing(&mut self) {
        self.phase = Phase::Killing { answer_by: self.clock.now().after(KEEPER_ANSWERS) };
        self.keeper.kill();
    }

    fn begin_stopping(&mut self) {
        self.phase = Phase::Stopping { until: self.clock.now().after(self.timeouts.stop_timeout) };
    }
}
