//! [`Histogram`]: counts durations in fixed buckets, without a lock. A reader may see one of two related
//! counts a moment before the other.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One count for each bucket, and one for longer durations.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

/// The inclusive upper bounds of the buckets, in milliseconds: from a local file to longer than any TTL
/// allows.
const BOUNDS: [u64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// The counts at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Buckets {
    /// For each bound, how many durations did not exceed it.
    pub(crate) cumulative: Vec<(Duration, u64)>,
    /// How many durations there were.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) sum: Duration,
}

impl Histogram {
    /// Counts a duration.
    pub(crate) fn record(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.sum_nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the counts so far.
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
