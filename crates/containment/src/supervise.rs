//! [`Supervision`]: a command from its start until the last process that it left behind is reaped (I6). Every stop
//! takes the same steps: pre-stop helper, signal, wait, kill. The wait ends at the stop timeout or shortly before the
//! kill deadline. Processes that a command leaves behind are stopped in the same way.

pub(crate) mod keeper_handle;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
pub(crate) mod spawn;

use crate::{
    event::{OnEvent, SupervisionEvent},
    launch::HelperError,
    messages::Helper,
    processes::ProcessEnd,
    signal_table::{asks_to_stop, signal_of},
    signals::{ForwardedSignal, SignalForCommand},
};
use keeper_handle::{Helpers, KeeperHandle, UnprovenKeeperEnd};
use rustix::{io::Errno, process::Signal};
use spawn::{CommandSpec, SpawnError, Starting};
use std::{ffi::OsString, future::pending, os::fd::AsFd, pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};

/// How long a keeper may take to confirm an order to kill. A busy machine needs far less; only a keeper that
/// hangs takes longer. The command's lease is renewed meanwhile.
const KEEPER_ANSWERS: Duration = Duration::from_secs(5);

/// How long a keeper may take to confirm a deadline before it is sent again: a full link loses messages. The pause
/// doubles each time, so that a keeper that hangs does not fill the link, which would lose an order to kill.
const CONFIRMS_WITHIN: Duration = Duration::from_millis(100);

/// The caller's controls of a supervision.
#[derive(Debug)]
pub struct Controls {
    /// Signals to forward to the command.
    pub signals: broadcast::Receiver<SignalForCommand>,
    /// Stops the command.
    pub stop: CancellationToken,
    /// The signal that asks the command to stop, unless one of `signals` has asked it; TERM if not given.
    pub stop_signal: Option<Signal>,
    /// Kills the command without waiting for it to stop.
    pub kill: CancellationToken,
    /// The kill deadline, which moves with each renewal.
    pub deadline: watch::Receiver<Option<Instant>>,
}

/// The time limits of a stop.
#[derive(Clone, Copy, Debug)]
pub struct StopTimeouts {
    /// For the pre-stop helper.
    pub pre_stop_timeout: Duration,
    /// The time between signal and kill that the pre-stop helper must leave to the command.
    pub least_to_stop: Duration,
    /// Between signal and kill.
    pub stop_timeout: Duration,
    /// For killing and reaping: the wait ends this long before the kill deadline.
    pub killing: Duration,
}

/// How a supervised command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Supervised {
    /// How the command's own process ended.
    pub ended: Option<ProcessEnd>,
    /// When that was noticed.
    pub ended_at: Option<Instant>,
    /// Whether it ended before this supervision began to stop it. The sender of a stop request may have signalled
    /// the command first, so that a request may still follow.
    pub by_itself: bool,
    /// The signals that asked it to stop.
    pub told: Vec<Signal>,
    /// Why the command was killed, if it had not ended before.
    pub killed: Option<KillReason>,
}

/// Why a command was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KillReason {
    /// It did not stop within [`StopTimeouts::stop_timeout`].
    StopTimeout,
    /// [`Controls::kill`] asked for it.
    SecondRequest,
    /// The kill deadline was near.
    Deadline,
}

/// Why a command was not supervised to its end.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The command was not started. No process of it is left.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The keeper has died. Processes of the command may still run.
    #[error(transparent)]
    Unproven(#[from] UnprovenKeeperEnd),
}

/// Starts a command, and supervises it until no process of it is left: [`start`](spawn::start),
/// [`Supervision::executed`] and [`Supervision::run`] in one call. Not cancel safe: dropped, the keeper kills
/// everything, and nothing waits for that.
pub async fn supervise<Input: AsFd, Guardian: AsFd>(
    command: &CommandSpec<'_, Input, Guardian>,
    clock: Arc<dyn Clock>,
    timeouts: StopTimeouts,
    controls: Controls,
) -> Result<Supervised, SuperviseError> {
    let mut supervision = Supervision::new(spawn::start(command)?, clock, timeouts, controls);
    match supervision.executed().await {
        Ok(()) => Ok(supervision.run().await?),
        Err(refusal) => {
            supervision.kill_at_once().run().await?;
            Err(refusal.into())
        }
    }
}

impl Supervised {
    /// Returns the signal that killed the command, if it asks to stop and the supervisor did not forward it. Then a
    /// terminal, a shell or a service manager has signalled all processes, and the command was faster.
    pub fn stopped_unasked(&self, stop_signal: Option<Signal>) -> Option<Signal> {
        let Some(ProcessEnd::Signalled(number)) = self.ended else { return None };
        let may_ask =
            |signal: &Signal| asks_to_stop(*signal) || *signal == Signal::HUP || Some(*signal) == stop_signal;
        signal_of(number).filter(|signal| may_ask(signal) && !self.told.contains(signal))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SupervisionPhase {
    Working,
    PreStopping {
        until: Instant,
    },
    Stopping {
        until: Instant,
    },
    Killing {
        /// When a keeper that has not confirmed is given up.
        answer_by: Instant,
    },
}

type PreStop = Pin<Box<dyn Future<Output = Result<ProcessEnd, HelperError>> + Send>>;

/// Signals that a lagging receiver missed merge, as pending signals do.
async fn next_signal(signals: &mut broadcast::Receiver<SignalForCommand>) -> SignalForCommand {
    loop {
        match signals.recv().await {
            Ok(signal) => return signal,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => pending().await,
        }
    }
}

async fn pre_stop_of(running: &mut Option<PreStop>) -> Result<ProcessEnd, HelperError> {
    match running {
        Some(running) => running.await,
        None => pending().await,
    }
}

/// A command under supervision.
#[derive(Debug)]
pub struct Supervision {
    command: OsString,
    keeper: KeeperHandle,
    helpers: Arc<Helpers>,
    on_event: OnEvent,
    clock: Arc<dyn Clock>,
    timeouts: StopTimeouts,
    controls: Controls,
    phase: SupervisionPhase,
    /// Signals that wait for the pre-stop helper.
    held: Vec<ForwardedSignal>,
    /// When the deadline is sent again that the keeper has not confirmed, and the pause before that.
    repeat: Option<(Instant, Duration)>,
    ended: CancellationToken,
    outcome: Supervised,
}

impl Supervision {
    /// Supervises a command that was [started](spawn::start), and its helpers.
    pub fn new(
        starting: Starting,
        clock: Arc<dyn Clock>,
        timeouts: StopTimeouts,
        controls: Controls,
    ) -> Self {
        let Starting { keeper, helpers, on_event, command, .. } = starting;
        let outcome =
            Supervised { ended: None, ended_at: None, by_itself: false, told: Vec::new(), killed: None };
        let phase = SupervisionPhase::Working;
        let held = Vec::new();
        let (repeat, ended) = (None, CancellationToken::new());
        Self {
            command,
            keeper,
            helpers,
            on_event,
            clock,
            timeouts,
            controls,
            phase,
            held,
            repeat,
            ended,
            outcome,
        }
    }

    /// Waits until the command is executed, or a stop, a kill or the kill deadline asks for its end: an execution may
    /// hang, as on a file system whose server does not answer (I10). [`run`](Self::run) takes the same steps before and
    /// after the execution. Fails if it could not be executed. May be dropped and called again at will.
    pub async fn executed(&mut self) -> Result<(), SpawnError> {
        loop {
            if let Some(executed) = self.keeper.executed() {
                return executed.map_err(|refusal| SpawnError::new(&self.command, refusal));
            }
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = self.keeper.changed() => {}
                () = self.controls.stop.cancelled() => return Ok(()),
                () = self.controls.kill.cancelled() => return Ok(()),
                Ok(()) = self.controls.deadline.changed() => {}
                () = self.clock.sleep_until(wake_at) => return Ok(()),
            }
        }
    }

    /// Kills everything that was started, without a stop signal before.
    pub fn kill_at_once(mut self) -> Self {
        self.begin_killing();
        self
    }

    /// Returns the helpers of the command.
    pub fn helpers(&self) -> Arc<Helpers> {
        Arc::clone(&self.helpers)
    }

    /// Returns what is cancelled once the command's own process has ended.
    pub fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Returns the kill deadline that the keeper's own timer enforces, as the keeper confirms it. `None` before the
    /// first confirmation, too. A keeper that was started without a deadline, and gets one later, can be stopped or
    /// hang when it is sent. Then nothing but this process would kill the command at the deadline. So work that is to
    /// be dead by the deadline must not begin before the deadline shows here (I4).
    pub fn in_force(&self) -> watch::Receiver<Option<Instant>> {
        self.keeper.in_force()
    }

    /// Supervises until the keeper has proven that no process of the command is left. Fails if the keeper has died:
    /// processes of the command may still run. Not cancel safe: as [`supervise`].
    pub async fn run(mut self) -> Result<Supervised, UnprovenKeeperEnd> {
        // Dropping it kills the helper.
        let mut pre_stop = None;
        loop {
            self.note_end();
            if let Some(proof) = self.keeper.proof() {
                return proof.map(|()| self.outcome);
            }
            let wake_at = self.wake_at();
            let repeat_at = self.repeat_at();
            tokio::select! {
                biased;
                // Before the end of the keeper, which may follow at once.
                outcome = pre_stop_of(&mut pre_stop), if self.is_pre_stopping() => {
                    pre_stop = None;
                    self.tell_after(outcome);
                }
                () = self.keeper.changed() => {}
                () = self.controls.kill.cancelled(), if !self.is_killing() => {
                    self.kill_for(KillReason::SecondRequest);
                }
                SignalForCommand { passed, asks } = next_signal(&mut self.controls.signals) => {
                    self.pass_on(passed, asks);
                }
                () = self.controls.stop.cancelled(), if self.phase == SupervisionPhase::Working => {
                    pre_stop = self.stop();
                }
                Ok(()) = self.controls.deadline.changed() => {}
                () = self.clock.sleep_until(repeat_at) => {
                    self.keeper.send_deadline();
                    self.repeat = self.repeat.map(|(_, pause)| {
                        let pause = pause.saturating_mul(2);
                        (self.clock.now().after(pause), pause)
                    });
                }
                () = self.clock.sleep_until(wake_at) => match self.phase {
                    SupervisionPhase::PreStopping { .. } => {
                        pre_stop = None;
                        self.tell_after(Err(HelperError::TooLong));
                    }
                    SupervisionPhase::Stopping { until } if self.clock.now() >= until => {
                        self.kill_for(KillReason::StopTimeout);
                    }
                    SupervisionPhase::Working | SupervisionPhase::Stopping { .. } => self.kill_for(KillReason::Deadline),
                    SupervisionPhase::Killing { .. } => {
                        self.phase = SupervisionPhase::Killing { answer_by: Instant::NEVER };
                        self.keeper.give_up();
                    }
                }
            }
        }
    }

    fn note_end(&mut self) {
        if let Some(ended) = self.keeper.command_ended()
            && self.outcome.ended.is_none()
        {
            self.has_ended(ended);
            // The pre-stop helper is among what is left.
            if !self.is_killing() && !self.is_pre_stopping() {
                self.stop_leftovers();
            }
        }
    }

    fn has_ended(&mut self, ended: ProcessEnd) {
        (self.outcome.ended, self.outcome.ended_at) = (Some(ended), Some(self.clock.now()));
        // A signal may have reached the command before its request to stop arrives here.
        self.outcome.by_itself = self.phase == SupervisionPhase::Working && self.outcome.told.is_empty();
        self.ended.cancel();
    }

    /// Returns when the present phase ends. Always shortly before the kill deadline: at the deadline the
    /// deadman ends this process (I4), which could not report the command's end then.
    fn wake_at(&mut self) -> Instant {
        let deadline = self.controls.deadline.borrow_and_update().unwrap_or(Instant::NEVER);
        let before_deadline = deadline.before(self.timeouts.killing);
        match self.phase {
            SupervisionPhase::PreStopping { until } => {
                until.min(before_deadline.before(self.timeouts.least_to_stop))
            }
            SupervisionPhase::Stopping { until } => until.min(before_deadline),
            SupervisionPhase::Working => before_deadline,
            SupervisionPhase::Killing { .. } if self.keeper.kills() => Instant::NEVER,
            SupervisionPhase::Killing { answer_by } => answer_by,
        }
    }

    /// Returns when the deadline is sent again. Never if the keeper has confirmed it.
    fn repeat_at(&mut self) -> Instant {
        if self.keeper.is_confirmed() {
            self.repeat = None;
            return Instant::NEVER;
        }
        let first = || (self.clock.now().after(CONFIRMS_WITHIN), CONFIRMS_WITHIN);
        self.repeat.get_or_insert_with(first).0
    }

    fn is_killing(&self) -> bool {
        matches!(self.phase, SupervisionPhase::Killing { .. })
    }

    fn is_pre_stopping(&self) -> bool {
        matches!(self.phase, SupervisionPhase::PreStopping { .. })
    }

    fn pass_on(&mut self, passed: ForwardedSignal, asks: bool) {
        if asks {
            self.outcome.told.push(passed.signal);
        }
        let comes_first = self.phase == SupervisionPhase::Working && self.helpers.has(Helper::PreStop);
        if asks && passed.delivered.is_none() && (comes_first || self.is_pre_stopping()) {
            self.held.push(passed);
        } else if self.outcome.ended.is_none() {
            self.keeper.pass_on(passed);
        }
    }

    fn stop(&mut self) -> Option<PreStop> {
        if !self.helpers.has(Helper::PreStop) {
            self.request_stop();
            return None;
        }
        let now = self.clock.now();
        self.phase = SupervisionPhase::PreStopping { until: now.after(self.timeouts.pre_stop_timeout) };
        if self.wake_at() <= now {
            self.on_event.report(SupervisionEvent::NoTimeForPreStop);
            self.request_stop();
            return None;
        }
        let (helpers, clock) = (Arc::clone(&self.helpers), Arc::clone(&self.clock));
        // The phase limits its time, because the kill deadline moves.
        Some(Box::pin(async move { helpers.run(Helper::PreStop, &clock, Instant::NEVER).await }))
    }

    fn tell_after(&mut self, pre_stop: Result<ProcessEnd, HelperError>) {
        match pre_stop {
            // A keeper that has ended has no command any more.
            Ok(ProcessEnd::Exited(0)) | Err(HelperError::System(Errno::PIPE)) => {}
            outcome => self.on_event.report(SupervisionEvent::PreStopFailed(outcome)),
        }
        match self.outcome.ended {
            Some(_) => self.stop_leftovers(),
            None => self.request_stop(),
        }
    }

    fn request_stop(&mut self) {
        self.begin_stopping();
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|passed| self.keeper.pass_on(passed));
        // If a signal asked for the stop, it was forwarded already.
        if self.outcome.told.is_empty() {
            self.pass_on(
                ForwardedSignal {
                    signal: self.controls.stop_signal.unwrap_or(Signal::TERM),
                    delivered: None,
                },
                true,
            );
        }
        // A stopped process handles TERM only once it continues.
        self.pass_on(ForwardedSignal { signal: Signal::CONT, delivered: None }, false);
    }

    fn stop_leftovers(&mut self) {
        if self.phase == SupervisionPhase::Working || self.is_pre_stopping() {
            self.begin_stopping();
        }
        self.keeper.terminate_rest(self.outcome.by_itself);
    }

    fn kill_for(&mut self, reason: KillReason) {
        if self.outcome.ended.is_none() {
            self.outcome.killed = Some(reason);
        }
        self.begin_killing();
    }

    fn begin_killing(&mut self) {
        self.phase = SupervisionPhase::Killing { answer_by: self.clock.now().after(KEEPER_ANSWERS) };
        self.keeper.kill();
    }

    fn begin_stopping(&mut self) {
        self.phase = SupervisionPhase::Stopping { until: self.clock.now().after(self.timeouts.stop_timeout) };
    }
}
