//! [`StopSignals`]: stops a host by TERM, INT, HUP and QUIT. [`StopRequests`]: tells a second stop request from an echo
//! of the first: a service manager signals every process of a unit, so guardian and host both get one TERM, and
//! `timeout` signals a process and then its group. Neither means "kill at once", as a second Ctrl-C does.

use crate::exit_status;
use rustix::process::Signal;
use std::{convert::Infallible, fs, future::poll_fn, io, sync::Arc, task::Poll, time::Duration};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};

/// Two requests to one process within this time count as one: a person is slower, two calls of kill(2) far faster.
const ECHO: Duration = Duration::from_millis(100);

/// The process that was signalled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// The outer process of `vvm run`.
    Guardian,
    /// The process that leads.
    Host,
}

/// What a request means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopRequest {
    /// Stop.
    Stop,
    /// A repetition of an earlier request.
    Echo,
    /// Stop waiting, and kill.
    Kill,
}

/// The stop requests so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct StopRequests {
    at_guardian: Option<Instant>,
    at_host: Option<Instant>,
}

impl StopRequests {
    /// Returns the meaning of a request that arrives now.
    pub fn on(&mut self, now: Instant, at: At) -> StopRequest {
        let is_first = self.at_guardian.is_none() && self.at_host.is_none();
        let place = match at {
            At::Guardian => &mut self.at_guardian,
            At::Host => &mut self.at_host,
        };
        match *place {
            None => {
                *place = Some(now);
                if is_first { StopRequest::Stop } else { StopRequest::Echo }
            }
            Some(earlier) if now.since(earlier) < ECHO => StopRequest::Echo,
            Some(_) => StopRequest::Kill,
        }
    }
}

#[derive(Debug)]
pub(crate) struct StopSignals(Vec<(Signal, Arrivals)>);

impl StopSignals {
    /// Catches TERM and INT, and, if they stop the host, HUP and QUIT unless ignored already, as HUP is under `nohup`.
    pub(crate) fn catch(stop_on_hup: bool, stop_on_quit: bool) -> io::Result<Self> {
        let mut caught = vec![Signal::TERM, Signal::INT];
        for (optional, stops) in [(Signal::HUP, stop_on_hup), (Signal::QUIT, stop_on_quit)] {
            if stops && !is_ignored(optional) {
                caught.push(optional);
            }
        }
        let caught = caught.into_iter();
        let caught = caught.map(|caught| Ok((caught, signal(SignalKind::from_raw(caught.as_raw()))?)));
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// Cancels `stop` at the first signal, and ends the process at a second TERM, INT or QUIT. The record is then not
    /// released, so another process can lead only after it expires, when no service works any more (I4). HUP never
    /// counts as a second signal: kernel and shell may both send one for the same lost terminal.
    pub(crate) async fn handle(mut self, stop: &CancellationToken, clock: &Arc<dyn Clock>) -> Infallible {
        let mut requests = StopRequests::default();
        loop {
            let caught = self.next().await;
            let request = match caught {
                Signal::HUP if stop.is_cancelled() => StopRequest::Echo,
                Signal::HUP => StopRequest::Stop,
                _ => requests.on(clock.now(), At::Host),
            };
            match request {
                StopRequest::Stop => {
                    tracing::info!(signal = name(caught), "stop requested");
                    stop.cancel();
                }
                StopRequest::Echo => {}
                StopRequest::Kill => {
                    tracing::warn!(signal = name(caught), "second stop request: ending at once");
                    // Returns only in process 1, which no signal ends.
                    let _ = signal_hook::low_level::emulate_default_handler(caught.as_raw());
                    std::process::exit(exit_status::by_signal(caught.as_raw()).into());
                }
            }
        }
    }

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

fn is_ignored(signal: Signal) -> bool {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_of_a_request_counts_once_and_a_second_request_kills() {
        use {At::*, StopRequest::*};
        let table = [
            ("a second request", [(0, Guardian, Stop), (150, Guardian, Kill), (400, Guardian, Kill)]),
            ("one to each process", [(0, Guardian, Stop), (300, Host, Echo), (500, Host, Kill)]),
            (
                "one to a process and its group",
                [(0, Guardian, Stop), (1, Guardian, Echo), (101, Guardian, Kill)],
            ),
        ];
        for (what, arrivals) in table {
            let mut requests = StopRequests::default();
            for (millis, at, meaning) in arrivals {
                let now = Instant::ORIGIN.after(Duration::from_millis(millis));
                assert_eq!(requests.on(now, at), meaning, "{what}, at {millis} ms");
            }
        }
    }
}
