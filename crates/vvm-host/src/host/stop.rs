//! [`StopSignals`]: stops a host by TERM, INT, HUP and QUIT.

use super::HostSettings;
use crate::{
    exit_status,
    stop_requests::{At, Request, StopRequests},
};
use rustix::process::Signal;
use std::{convert::Infallible, fs, future::poll_fn, io, sync::Arc, task::Poll};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

/// Receives the signals that stop a host.
#[derive(Debug)]
pub(super) struct StopSignals(Vec<(Signal, Arrivals)>);

impl StopSignals {
    /// Catches TERM and INT. Catches HUP and QUIT if `settings` say so, unless they are ignored already, as
    /// HUP is under `nohup`.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the runtime drives no signals.
    pub(super) fn catch(settings: &HostSettings) -> io::Result<Self> {
        let optional = [(Signal::HUP, settings.stop_on_hup), (Signal::QUIT, settings.stop_on_quit)];
        let optional = optional.into_iter().filter(|(signal, stops)| *stops && !is_ignored(*signal));
        let caught = [Signal::TERM, Signal::INT].into_iter().chain(optional.map(|(signal, _)| signal));
        let caught = caught.map(|caught| Ok((caught, signal(SignalKind::from_raw(caught.as_raw()))?)));
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// Cancels `stop` at the first signal, and ends the process at a second TERM, INT or QUIT. Services that
    /// still work are dead then before another process can lead, since the record stands until it expires
    /// (I4). HUP never counts as a second signal: kernel and shell may both send one for the same lost
    /// terminal.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn handle(mut self, stop: &CancellationToken, clock: &Arc<dyn Clock>) -> Infallible {
        let mut requests = StopRequests::default();
        loop {
            let caught = self.next().await;
            let request = match caught {
                Signal::HUP if stop.is_cancelled() => Request::Echo,
                Signal::HUP => Request::Stop,
                _ => requests.on(clock.now(), At::Host),
            };
            match request {
                Request::Stop => {
                    tracing::info!(signal = name(caught), "stop requested");
                    stop.cancel();
                }
                Request::Echo => {}
                Request::Kill => {
                    tracing::warn!(signal = name(caught), "second stop request: ending at once");
                    // Returns only in process 1, which no signal ends.
                    let _ = signal_hook::low_level::emulate_default_handler(caught.as_raw());
                    std::process::exit(exit_status::by_signal(caught.as_raw()).into());
                }
            }
        }
    }

    /// Returns the next signal.
    async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let arrived = |(signal, arrivals): &mut (Signal, Arrivals)| {
                // The streams end only with the runtime.
                matches!(arrivals.poll_recv(cx), Poll::Ready(Some(()))).then_some(*signal)
            };
            self.0.iter_mut().find_map(arrived).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn name(signal: Signal) -> &'static str {
    signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal")
}

/// Returns whether this process ignores `signal`, from proc(5); false if that can't be read.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}
