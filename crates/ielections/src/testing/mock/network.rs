//! [`Network`]: calls in flight. Dropping the caller does not cancel them.

use crate::{BatchOutcome, Claim, Delete, Swap};
use std::{collections::BTreeMap, fmt, pin::Pin};
use vvm_clock::Instant;

/// The outcome of a write.
pub(super) trait Outcome: Send + 'static {
    /// Whether the write was applied.
    fn applied(&self) -> bool;
}

impl Outcome for Claim {
    fn applied(&self) -> bool {
        *self == Self::Claimed
    }
}

impl Outcome for Swap {
    fn applied(&self) -> bool {
        *self == Self::Swapped
    }
}

impl Outcome for Delete {
    fn applied(&self) -> bool {
        *self == Self::Deleted
    }
}

impl Outcome for BatchOutcome {
    fn applied(&self) -> bool {
        *self == Self::Written
    }
}

/// How a call in flight ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Landing {
    /// The caller has the answer.
    InTime,
    /// Applied, after the caller was dropped.
    AppliedLate,
    /// Refused or failed, after the caller was dropped.
    RefusedLate,
}

/// A call in flight. Its first poll is its arrival at the storage.
pub(super) type Parcel = Pin<Box<dyn Future<Output = Landing> + Send>>;

/// The calls in flight, in the order of their arrival: by time, then as sent.
#[derive(Default)]
pub(super) struct Network {
    under_way: BTreeMap<(Instant, u64), Parcel>,
    sent: u64,
}

impl Network {
    /// Sends `parcel`. With [`Instant::NEVER`] it does not arrive by itself.
    pub(super) fn send(&mut self, arrives_at: Instant, parcel: Parcel) {
        self.sent += 1;
        self.under_way.insert((arrives_at, self.sent), parcel);
    }

    /// Removes and returns the next call that has arrived by `now`.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Parcel> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.under_way.first_key_value().map(|((at, _), _)| *at).filter(|&at| at != Instant::NEVER)
    }

    /// Removes all calls in flight. A caller that waits sees the sender of its answer dropped.
    pub(super) fn take(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.under_way).into_values().collect()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.under_way.keys()).finish()
    }
}
