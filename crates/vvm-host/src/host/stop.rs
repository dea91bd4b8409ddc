//! Being told to stop: by TERM, INT and HUP, and by the program itself.

use crate::{
    exit_status,
    stop_requests::{At, Request, StopRequests},
};
use rustix::process::Signal;
use std::{convert::Infallible, fs, io, sync::Arc};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

/// TERM, INT and HUP, caught from here on.
#[derive(Debug)]
pub(super) struct StopSignals {
    term: Arrivals,
    int: Arrivals,
    /// None where it stays ignored.
    hup: Option<Arrivals>,
}

impl StopSignals {
    /// Catches TERM and INT; and HUP, if that is to stop and was not ignored before, as under `nohup`.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the runtime drives no signals.
    pub(super) fn catch(stop_on_hup: bool) -> io::Result<Self> {
        let catches_hup = stop_on_hup && !is_ignored(Signal::HUP);
        let hup = catches_hup.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())?, hup })
    }

    /// Stops at the first one, and ends the process at a second TERM or INT: whatever still works then is
    /// dead before another process can lead, since the record stands until it expires (I4). HUP never counts
    /// as a second one: kernel and shell may both tell of one lost terminal.
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

async fn next(arrivals: &mut Option<Arrivals>) -> Option<()> {
    match arrivals {
        Some(arrivals) => arrivals.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether this process ignores `signal`, as proc(5) shows it. No, where that can't be read.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}
