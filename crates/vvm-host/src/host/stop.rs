//! Being told to stop: by TERM and INT, and by the program itself.

use crate::{
    exit_status,
    stop_requests::{At, Request, StopRequests},
};
use rustix::process::Signal;
use std::{convert::Infallible, io, sync::Arc};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

/// TERM and INT, caught from here on.
#[derive(Debug)]
pub(super) struct StopSignals {
    term: Arrivals,
    int: Arrivals,
}

impl StopSignals {
    /// Catches both.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the runtime drives no signals.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Stops at the first one, and ends the process at the second: whatever still works then is dead before anybody else
    /// can lead, since the record stands until it expires (I4).
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn heed(mut self, stop: &CancellationToken, clock: &Arc<dyn Clock>) -> Infallible {
        let mut requests = StopRequests::default();
        loop {
            let caught = tokio::select! {
                biased;
                Some(()) = self.term.recv() => Signal::TERM,
                Some(()) = self.int.recv() => Signal::INT,
                // Both streams end only with the runtime.
                else => std::future::pending().await,
            };
            match requests.on(clock.now(), At::Host) {
                Request::Stop => {
                    tracing::info!(signal = name(caught), "told to stop");
                    stop.cancel();
                }
                Request::Echo => {}
                Request::Kill => {
                    tracing::warn!(signal = name(caught), "told to stop again: ending at once");
                    // Returns only in process 1, which no signal ends.
                    let _ = signal_hook::low_level::emulate_default_handler(caught.as_raw());
                    std::process::exit(exit_status::by_signal(caught.as_raw()).into());
                }
            }
        }
    }
}

fn name(signal: Signal) -> &'static str {
    signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal")
}
