//! What this process is told from outside, by signals and by the guardian, sorted for those who act on it.

use crate::{
    announce,
    signals::{Caught, Signals, asks_to_stop, ends_a_candidate},
};
use rustix::process::Signal;
use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_containment::{
    ForwardedSignal, Guardian, Readable, Received, SignalForCommand, SignalSource, ToSupervisor,
    terminal_is_gone,
};
use vvm_host::operate::{At, Request, StopRequests};
use vvm_host::status::{HostStatus, WhyStopping};

/// Signals on their way to the worker: as many as can come before it is looked at. More merge, as pending
/// ones do.
const SIGNALS: usize = 64;

/// How long after the shell's HUP its terminal may be gone: a shell tells its jobs first, and then ends.
const SHELL_ENDS: Duration = Duration::from_millis(250);

/// What was told.
#[derive(Debug)]
pub(super) struct Control {
    /// Somebody asked to stop.
    pub(super) stop: CancellationToken,
    /// Learns first that the guardian has died.
    situation: Arc<HostStatus>,
    /// By this signal.
    stop_signal: OnceLock<Signal>,
    /// Somebody asked again.
    pub(super) kill: CancellationToken,
    /// The guardian has not listened for so long that it counts as gone.
    pub(super) guardian_lapsed: CancellationToken,
    /// The guardian has died.
    pub(super) guardian_died: CancellationToken,
    /// For the worker.
    pub(super) signals: broadcast::Sender<SignalForCommand>,
    /// The deadline that the guardian's own timer stands at.
    pub(super) in_force: watch::Sender<Option<Instant>>,
}

impl Control {
    /// Nothing has been told yet. `stop` stops the host, whose status this is.
    pub(super) fn new(stop: CancellationToken, situation: Arc<HostStatus>) -> Self {
        Self {
            stop,
            situation,
            stop_signal: OnceLock::new(),
            kill: CancellationToken::new(),
            guardian_lapsed: CancellationToken::new(),
            guardian_died: CancellationToken::new(),
            signals: broadcast::Sender::new(SIGNALS),
            in_force: watch::Sender::new(None),
        }
    }

    /// Listens as long as it is polled.
    ///
    /// # Errors
    /// When the runtime can't poll any more.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn listen(
        &self,
        guardian: Guardian,
        mut signals: Signals,
        clock: Arc<dyn Clock>,
    ) -> io::Result<std::convert::Infallible> {
        let mut requests = StopRequests::default();
        let guardian_socket = Readable::of(&guardian)?;
        let signals_socket = Readable::of(&signals)?;
        let mut guardian_speaks = true;
        let mut terminal_may_be_gone_at = Instant::NEVER;
        loop {
            tokio::select! {
                biased;
                caught = signals_socket.find(|| signals.pending()) => {
                    for Caught { signal, .. } in caught? {
                        // The others are for the worker, and whoever means it signals the guardian.
                        if asks_to_stop(signal) {
                            self.asked_to_stop(requests.on(clock.now(), At::Host), signal, false);
                        }
                    }
                }
                heard = guardian_socket.find(|| guardian.receive()), if guardian_speaks => match heard? {
                    Received::Message(ToSupervisor::Signalled { signal, source }, _) => {
                        let delivered = source == SignalSource::Terminal && signal != Signal::HUP;
                        let for_us = if self.has_worker() { asks_to_stop } else { ends_a_candidate };
                        if for_us(signal) {
                            self.asked_to_stop(requests.on(clock.now(), At::Guardian), signal, delivered);
                        } else if signal == Signal::HUP && tells_of_lost_terminal(source) {
                            self.hung_up();
                        } else {
                            self.pass_on(signal, delivered, false);
                            if signal == Signal::HUP && source == SignalSource::Shell {
                                terminal_may_be_gone_at = clock.now().after(SHELL_ENDS);
                            }
                        }
                    }
                    Received::Message(ToSupervisor::InForce(deadline), _) => {
                        self.in_force.send_replace(deadline);
                    }
                    Received::Message(ToSupervisor::Begin { .. }, _) => {}
                    Received::End => {
                        guardian_speaks = false;
                        // Received before its process is seen to end: the kernel closes first. So what ends from
                        // here on has not ended by itself.
                        self.end_with_guardian();
                    }
                },
                () = clock.sleep_until(terminal_may_be_gone_at) => {
                    terminal_may_be_gone_at = Instant::NEVER;
                    if terminal_is_gone() {
                        self.hung_up();
                    }
                }
            }
        }
    }

    /// Whoever notices says that the guardian has died: everything is to stop and be killed, and to be said
    /// to nobody who might be at a terminal. From any thread, and as often as one likes.
    pub(super) fn end_with_guardian(&self) {
        announce::leave_terminal();
        self.guardian_died.cancel();
        // Before the stop, which would be the reason otherwise.
        self.situation.stops(WhyStopping::GuardianDied);
        self.kill.cancel();
        self.stop.cancel();
    }

    /// Returns the signal that asked to stop first. Without one, as for a stop of its own, TERM.
    pub(super) fn stop_signal(&self) -> Signal {
        self.stop_signal.get().copied().unwrap_or(Signal::TERM)
    }

    /// Why work is to stop, once it is.
    pub(super) fn why(&self) -> WhyStopping {
        if self.guardian_died.is_cancelled() { WhyStopping::GuardianDied } else { WhyStopping::Asked }
    }

    /// Whether there is a worker to pass signals on to, or one on its way.
    fn has_worker(&self) -> bool {
        self.signals.receiver_count() > 0
    }

    fn asked_to_stop(&self, request: Request, signal: Signal, delivered: bool) {
        match request {
            Request::Stop => self.stop_by(signal, delivered),
            Request::Echo => {}
            Request::Kill => self.kill.cancel(),
        }
    }

    /// The terminal is lost. The kernel may have told the guardian alone, so that the command gets a HUP in
    /// any case: a second one is harmless to it, none is not.
    ///
    /// Not a request that another one follows to kill: kernel and shell may both tell of one loss.
    fn hung_up(&self) {
        if self.stop.is_cancelled() {
            self.pass_on(Signal::HUP, false, false);
        } else {
            self.stop_by(Signal::HUP, false);
        }
    }

    fn stop_by(&self, signal: Signal, delivered: bool) {
        // The first stands.
        let _ = self.stop_signal.set(signal);
        self.pass_on(signal, delivered, true);
        self.stop.cancel();
    }

    fn pass_on(&self, signal: Signal, delivered: bool, asks: bool) {
        // Without a command there is no receiver, and the signal has no addressee.
        let _ = self.signals.send(SignalForCommand { passed: ForwardedSignal { signal, delivered }, asks });
    }
}

/// Whether a HUP from there tells of a lost terminal. A shell may end right after it; any other process may
/// mean the command alone, which is to read its settings again.
fn tells_of_lost_terminal(source: SignalSource) -> bool {
    match source {
        SignalSource::Terminal => true,
        SignalSource::Shell => terminal_is_gone(),
        SignalSource::Process => false,
    }
}
