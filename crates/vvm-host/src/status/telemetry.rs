//! [`Telemetry`]: the counters of this process. Counting never waits.

use ielections::{Loss, ReadError, WriteError};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    /// The times from sending a renewal to the answer that confirms it.
    pub(crate) renewals: Histogram,
    pub(crate) leaderships: Counter,
    /// Records of other leaders that were taken over because they were not renewed.
    pub(crate) take_overs: Counter,
    pub(crate) restarts: Counter,
    pub(crate) check_failures: Counter,
    pub(crate) last_exit_status: Mutex<Option<u8>>,
    reads: Counter,
    writes: Counter,
    failures: [Counter; FAILURES.len()],
    losses: [Counter; LOSSES.len()],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read,
    Write,
}

/// The failure of a call without an answer within the time of an attempt.
pub(crate) const NO_ANSWER: &str = "no_answer";

const FAILURES: [(Call, &str); 9] = [
    (Call::Read, "unavailable"),
    (Call::Read, "fatal"),
    (Call::Read, "replaced"),
    (Call::Read, NO_ANSWER),
    (Call::Write, "not_applied"),
    (Call::Write, "unknown"),
    (Call::Write, "fatal"),
    (Call::Write, "replaced"),
    (Call::Write, NO_ANSWER),
];

pub(crate) trait FailureKind: fmt::Display {
    fn word(&self) -> &'static str;
}

impl FailureKind for ReadError {
    fn word(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Fatal(_) => "fatal",
            Self::Replaced(_) => "replaced",
        }
    }
}

impl FailureKind for WriteError {
    fn word(&self) -> &'static str {
        match self {
            Self::NotApplied(_) => "not_applied",
            Self::Unknown(_) => "unknown",
            Self::Fatal(_) => "fatal",
            Self::Replaced(_) => "replaced",
        }
    }
}

const LOSSES: [&str; 9] = [
    "stolen",
    "vanished",
    "epoch_went_back",
    "storage_replaced",
    "storage_unreachable",
    "support_ended",
    "suspended",
    "engine_ended",
    "dropped",
];

/// Returns a loss as metrics and JSON name it. `None` if this process ended its leadership itself.
pub(crate) fn loss_word(loss: &Loss) -> Option<&'static str> {
    Some(match loss {
        Loss::Stolen { .. } => "stolen",
        Loss::Vanished => "vanished",
        Loss::EpochWentBack { .. } => "epoch_went_back",
        Loss::StorageReplaced { .. } => "storage_replaced",
        Loss::StorageUnreachable { .. } => "storage_unreachable",
        Loss::SupportEnded { .. } => "support_ended",
        Loss::Suspended => "suspended",
        Loss::EngineEnded => "engine_ended",
        Loss::Dropped => "dropped",
        Loss::Closing | Loss::HandedBack => return None,
    })
}

impl Telemetry {
    /// The calls of this kind, failed ones included.
    pub(crate) fn calls(&self, call: Call) -> &Counter {
        match call {
            Call::Read => &self.reads,
            Call::Write => &self.writes,
        }
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (Call, &'static str, u64)> {
        FAILURES.into_iter().zip(&self.failures).map(|((call, failure), count)| (call, failure, count.get()))
    }

    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LOSSES.into_iter().zip(self.losses.iter().map(Counter::get))
    }

    pub(super) fn failed(&self, call: Call, failure: &str) {
        if let Some(place) = FAILURES.iter().position(|known| *known == (call, failure)) {
            self.failures[place].inc();
        }
    }

    pub(super) fn lost(&self, loss: &Loss) {
        if let Some(place) = LOSSES.iter().position(|known| loss_word(loss) == Some(*known)) {
            self.losses[place].inc();
        }
    }
}

impl Call {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A histogram of durations in fixed buckets, without a lock: one of two related counts may be seen before the other.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One count for each bucket, and one for longer durations.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

/// The inclusive upper bounds of the buckets, in milliseconds: from a local file to longer than any TTL allows.
pub(crate) const BOUNDS: [u64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Buckets {
    /// For each bound, how many durations did not exceed it.
    pub(crate) cumulative: Vec<(Duration, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: Duration,
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.sum_nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn read(&self) -> Buckets {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(BOUNDS.len());
        for (place, of_bucket) in self.counts.iter().enumerate() {
            count += of_bucket.load(Relaxed);
            if let Some(bound) = BOUNDS.get(place) {
                cumulative.push((Duration::from_millis(*bound), count));
            }
        }
        Buckets { cumulative, count, sum: Duration::from_nanos(self.sum_nanos.load(Relaxed)) }
    }
}
