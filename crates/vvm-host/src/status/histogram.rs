//! [`Histogram`]: durations, counted into buckets that never change. No lock; a reader may see one of two
//! counts that change together a moment before the other.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Durations by how long they are.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Of each bucket alone, and of what is longer than all of them.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

/// Up to and with which duration a bucket reaches, in milliseconds: from a local file to what no TTL would
/// bear.
const BOUNDS: [u64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// What was counted up to a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Buckets {
    /// How many were not longer than the bound, each with those of the buckets before.
    pub(crate) cumulative: Vec<(Duration, u64)>,
    /// How many there were.
    pub(crate) count: u64,
    /// How long they were together.
    pub(crate) sum: Duration,
}

impl Histogram {
    /// Counts one.
    pub(crate) fn record(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        // There is one more bucket than there are bounds.
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.sum_nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// What was counted so far.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_every_bucket_that_reaches_as_far() {
        let histogram = Histogram::default();
        for millis in [1, 3, 700, 60_000] {
            histogram.record(Duration::from_millis(millis));
        }
        let read = histogram.read();
        let up_to = |millis| {
            let bound = Duration::from_millis(millis);
            read.cumulative.iter().find(|(of, _)| *of == bound).unwrap().1
        };
        assert_eq!(
            [up_to(1), up_to(2), up_to(5), up_to(500), up_to(1_000), up_to(10_000)],
            [1, 1, 2, 2, 3, 3]
        );
        assert_eq!((read.count, read.sum), (4, Duration::from_millis(60_704)));
    }
}
