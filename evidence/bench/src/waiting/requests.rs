//! [`Requests`]: how many requests candidates send to their storage, by their own metrics.

use crate::candidate;
use harness::{Running, Trial};
use rustix::process::Signal;
use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

const METRIC: &str = "vvm_storage_calls_total{";

/// Why requests could not be counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestsError {
    #[error("the metrics of vvm could not be read: {0}")]
    Read(#[from] io::Error),
    #[error("the metrics of vvm are not understood: {0}")]
    Understand(String),
}

/// A leader and a standby that serve metrics.
pub(super) struct Requests {
    leading: Counted,
    waiting: Counted,
}

/// The requests of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    pub(super) leading: f64,
    pub(super) waiting: f64,
}

impl Requests {
    pub(super) fn start(trial: &Trial) -> Result<Self, RequestsError> {
        let mut leading = Counted::start(trial)?;
        leading.candidate.stdout.wait_for("alone");
        let mut waiting = Counted::start(trial)?;
        waiting.candidate.stderr.wait_for("waiting for leadership");
        Ok(Self { leading, waiting })
    }

    pub(super) fn read(&self) -> Result<Count, RequestsError> {
        Ok(Count { leading: self.leading.read()?, waiting: self.waiting.read()? })
    }

    /// Ends both, the standby first: it must not lead.
    pub(super) fn end(self) {
        for candidate in [self.waiting.candidate, self.leading.candidate] {
            candidate.signal(Signal::TERM);
            candidate.finish();
        }
    }
}

impl Count {
    /// Those in a minute since `before`, which was read `minutes` ago.
    pub(super) fn since(self, before: Self, minutes: f64) -> Self {
        let each = |now: f64, before: f64| (now - before) / minutes;
        Self { leading: each(self.leading, before.leading), waiting: each(self.waiting, before.waiting) }
    }
}

struct Counted {
    candidate: Running,
    address: String,
}

impl Counted {
    fn start(trial: &Trial) -> Result<Self, RequestsError> {
        let mut candidate = candidate::start(trial, &[], &["--http", "127.0.0.1:0"])?;
        let line = candidate.stderr.wait_for("status page: http://");
        let address = line.rsplit("http://").next().unwrap_or_default().trim().trim_end_matches('/');
        Ok(Self { candidate, address: address.to_owned() })
    }

    fn read(&self) -> Result<f64, RequestsError> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let samples = text.lines().filter(|line| line.starts_with(METRIC));
        let numbers = samples.map(|line| line.rsplit(' ').next()?.parse().ok()).collect::<Option<Vec<f64>>>();
        let numbers = numbers.filter(|numbers| !numbers.is_empty());
        numbers.map(|numbers| numbers.iter().sum()).ok_or(RequestsError::Understand(text))
    }
}
