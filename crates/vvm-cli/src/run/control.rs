//! [`Control`]: receives signals and messages of the guardian, and turns them into stop requests.

use crate::{
    announce::{self, say},
    contained::NotStarted,
    leadership::{Activity, HostState, ToGuardian},
    runtime::{ReceivedSignal, Signals, asks_to_stop, ends_a_candidate},
};
use rustix::process::Signal;
use std::{
    convert::Infallible,
    future, io,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_containment::{
    ForwardedSignal, Guardian, LinkMessage, ReadableLink, SignalForCommand, SignalSource, ToSupervisor,
    terminal_is_gone,
};
use vvm_host::{
    operate::{At, StopRequest, StopRequests},
    status::{HostStatus, Role, WhyStopping},
};

/// Signals that wait to be forwarded to the command. Further ones merge, as pending signals do.
const SIGNALS: usize = 64;

/// The terminal may disappear this long after the shell's HUP: a shell signals its jobs before it ends.
const SHELL_ENDS: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Control {
    pub(super) stop: CancellationToken,
    status: Arc<HostStatus>,
    stop_request: OnceLock<(Signal, Instant)>,
    stop_signal: Option<Signal>,
    pub(super) kill: CancellationToken,
    /// Cancelled when the guardian has not confirmed a deadline until it passed.
    pub(super) guardian_lapsed: CancellationToken,
    pub(super) guardian_died: CancellationToken,
    pub(super) not_started: OnceLock<Arc<NotStarted>>,
    pub(super) signals: broadcast::Sender<SignalForCommand>,
    /// The deadline that the guardian's own timer enforces.
    pub(super) in_force: watch::Sender<Option<Instant>>,
}

impl Control {
    pub(super) fn new(stop: CancellationToken, status: Arc<HostStatus>, stop_signal: Option<Signal>) -> Self {
        Self {
            stop,
            status,
            stop_request: OnceLock::new(),
            stop_signal,
            kill: CancellationToken::new(),
            guardian_lapsed: CancellationToken::new(),
            guardian_died: CancellationToken::new(),
            not_started: OnceLock::new(),
            signals: broadcast::Sender::new(SIGNALS),
            in_force: watch::Sender::new(None),
        }
    }

    /// Handles signals and messages as long as it is polled. May be dropped at any time.
    pub(super) async fn listen(
        &self,
        guardian: Guardian,
        mut signals: Signals,
        clock: Arc<dyn Clock>,
    ) -> io::Result<std::convert::Infallible> {
        let mut requests = StopRequests::default();
        let guardian_socket = ReadableLink::new(&guardian)?;
        let signals_socket = ReadableLink::new(&signals)?;
        let mut guardian_speaks = true;
        let mut terminal_may_be_gone_at = Instant::NEVER;
        loop {
            tokio::select! {
                biased;
                caught = signals_socket.find(|| signals.pending()) => {
                    for ReceivedSignal { signal, from_kernel, .. } in caught? {
                        // The soft limit of this process. At the hard one the kernel kills.
                        let is_limit = from_kernel && signal == Signal::XCPU;
                        let signal = if is_limit { Signal::TERM } else { signal };
                        if is_limit {
                            say!("stopping: the host has used the CPU time that it may use: allow more (ulimit -t, LimitCPU=)");
                        }
                        // Signals for the command go to the guardian.
                        if self.asks_to_stop(signal) {
                            let now = clock.now();
                            self.asked_to_stop(requests.on(now, At::Host), now, signal, None);
                        }
                    }
                }
                heard = guardian_socket.find(|| guardian.receive()), if guardian_speaks => match heard? {
                    LinkMessage::Message(ToSupervisor::Signalled { signal, source }, _) => {
                        let now = clock.now();
                        let is_of_terminal = source == SignalSource::Terminal && signal != Signal::HUP;
                        let delivered = is_of_terminal.then_some(now);
                        let for_us = !self.has_worker() && ends_a_candidate(signal);
                        if for_us || self.asks_to_stop(signal) {
                            self.asked_to_stop(requests.on(now, At::Guardian), now, signal, delivered);
                        } else if signal == Signal::HUP && tells_of_lost_terminal(source) {
                            self.hung_up(now);
                        } else {
                            self.pass_on(signal, delivered, false);
                            if signal == Signal::HUP && source == SignalSource::Shell {
                                terminal_may_be_gone_at = now.after(SHELL_ENDS);
                            }
                        }
                    }
                    LinkMessage::Message(ToSupervisor::InForce(deadline), _) => {
                        self.in_force.send_replace(deadline);
                    }
                    LinkMessage::Message(ToSupervisor::Begin { .. }, _) => {}
                    LinkMessage::End => {
                        guardian_speaks = false;
                        // The kernel closes the link before the guardian's end shows: a command that ends
                        // after this did not end by itself.
                        self.end_with_guardian();
                    }
                },
                () = clock.sleep_until(terminal_may_be_gone_at) => {
                    terminal_may_be_gone_at = Instant::NEVER;
                    if terminal_is_gone() {
                        self.hung_up(clock.now());
                    }
                }
            }
        }
    }

    /// Stops and kills everything because the guardian has died, and writes nothing more to a terminal. May
    /// be called from any thread, and repeatedly.
    pub(super) fn end_with_guardian(&self) {
        announce::leave_terminal();
        self.guardian_died.cancel();
        // Before the stop, because the first reason counts.
        self.status.stops(WhyStopping::GuardianDied);
        self.kill.cancel();
        self.stop.cancel();
    }

    /// Waits for a stop request, and never returns unless the storage is not open yet: then nothing is held.
    pub(super) async fn stopped_while_opening(&self) {
        self.stop.cancelled().await;
        if !matches!(self.status.role(), Role::Opening) {
            future::pending::<()>().await;
        }
    }

    pub(super) fn stop_signal(&self) -> Signal {
        self.stop_request.get().map_or(Signal::TERM, |(signal, _)| *signal)
    }

    pub(super) fn was_asked_to_stop_by(&self, then: Instant) -> bool {
        self.stop_request.get().is_some_and(|(_, at)| *at <= then)
    }

    pub(super) fn why(&self) -> WhyStopping {
        if self.guardian_died.is_cancelled() { WhyStopping::GuardianDied } else { WhyStopping::Asked }
    }

    pub(super) fn has_worker(&self) -> bool {
        self.signals.receiver_count() > 0
    }

    fn asks_to_stop(&self, signal: Signal) -> bool {
        asks_to_stop(signal) || self.stop_signal == Some(signal)
    }

    fn asked_to_stop(&self, request: StopRequest, now: Instant, signal: Signal, delivered: Option<Instant>) {
        match request {
            StopRequest::Stop => self.stop_by(now, signal, delivered),
            StopRequest::Echo => {}
            StopRequest::Kill => self.kill.cancel(),
        }
    }

    /// Stops because the terminal is lost. The kernel may have signalled the guardian alone, so the command
    /// gets HUP in any case. Never counts as a second request: kernel and shell may both report one loss.
    fn hung_up(&self, now: Instant) {
        if self.stop.is_cancelled() {
            self.pass_on(Signal::HUP, None, false);
        } else {
            self.stop_by(now, Signal::HUP, None);
        }
    }

    fn stop_by(&self, now: Instant, signal: Signal, delivered: Option<Instant>) {
        let _ = self.stop_request.set((signal, now));
        let of_command = self.stop_signal.filter(|_| signal == Signal::TERM).unwrap_or(signal);
        self.pass_on(of_command, delivered, true);
        self.stop.cancel();
    }

    fn pass_on(&self, signal: Signal, delivered: Option<Instant>, asks: bool) {
        let _ = self.signals.send(SignalForCommand { passed: ForwardedSignal { signal, delivered }, asks });
    }
}

/// Whether a HUP from `source` reports a lost terminal. A shell may end right after it; another process may
/// mean the command alone, to reload its settings.
fn tells_of_lost_terminal(source: SignalSource) -> bool {
    match source {
        SignalSource::Terminal => true,
        SignalSource::Shell => terminal_is_gone(),
        SignalSource::Process => false,
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the guardian does not answer (stopped by Ctrl-Z?), so the command would not be contained")]
pub(super) struct GuardianSilent;

/// Sends each change, as long as it is polled. May be dropped at any time.
pub(super) async fn send_changes(status: Arc<HostStatus>, guardian: Guardian) -> Infallible {
    let mut roles = status.roles();
    loop {
        if let Some(state) = state(&roles.borrow_and_update()) {
            // A guardian that does not read misses this one, and gets the next.
            guardian.note(ToGuardian::State(state).into());
        }
        if roles.changed().await.is_err() {
            return future::pending().await;
        }
    }
}

fn state(role: &Role) -> Option<HostState> {
    let activity = match role {
        Role::Opening => return None,
        Role::Unready | Role::Campaigning => Activity::Waiting,
        Role::Starting(_) | Role::Leading(_) => Activity::Leading,
        Role::Idling { .. } => Activity::Restarting,
        // After a loss or the command's end another campaign may follow.
        Role::Stopping { why: WhyStopping::Asked, .. } => Activity::StoppingForGood,
        Role::Stopping { .. } => Activity::Stopping,
        Role::Ended { .. } => Activity::Ended,
    };
    let leading = role.leadership().map(|leading| (leading.slot, leading.standing.epoch()));
    Some(HostState { activity, leading })
}
