//! [`StopSignals`]: stops a host by TERM, INT and HUP.

use crate::{
    exit_status,
    stop_requests::{At, Request, StopRequests},
};
use rustix::process::Signal;
use std::{convert::Infallible, fs, io, sync::Arc};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

/// Receives TERM, INT and HUP.
#[derive(Debug)]
pub(super) struct StopSignals {
    term: Arrivals,
    int: Arrivals,
    /// `None` if HUP is not caught.
    hup: Option<Arrivals>,
}

impl StopSignals {
    /// Catches TERM and INT, and with `stop_on_hup` HUP, unless it is ignored already, as under `nohup`.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the runtime drives no signals.
    pub(super) fn catch(stop_on_hup: bool) -> io::Result<Self> {
        let catches_hup = stop_on_hup && !is_ignored(Signal::HUP);
        let hup = catches_hup.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())?, hup })
    }

    /// Cancels `stop` at the first signal, and ends the process at a second TERM or INT. Services that still
    /// work are dead then before another process can lead, since the record stands until it expires (I4). HUP
    /// never counts as a second signal: kernel and shell may both send one for the same lost terminal.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn handle(mut self, stop: &CancellationToken, clock: &Arc<dyn Clock>) -> Infallible {
        let mut requests = StopRequests::default();
        loop {
            let caught = tokio::select! {
                biased;
                Some(()) = self.term.recv() => Signal::TERM,
                Some(()) = self.int.recv() => Signal::INT,
                Some(()) = next(&mut self.hup) => Signal::HUP,
                // The streams end only with the runtime.
                else => std::future::pending().await,
            };
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
}

fn name(signal: Signal) -> &'static str {
    signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal")
}

async fn next(arrivals: &mut Option<Arrivals>) -> Option<()> {
    match arrivals {
        Some(arrivals) => arrivals.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns whether this process ignores `signal`, from proc(5); false if that can't be read.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}
