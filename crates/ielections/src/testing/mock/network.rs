//! What is under way: sent, not yet arrived, and no longer in its caller's hands.

use crate::{BatchOutcome, Claim, Delete, Swap};
use std::{collections::BTreeMap, fmt, pin::Pin};
use vvm_clock::Instant;

/// The outcome of a write.
pub(super) trait Outcome: Send + 'static {
    /// Whether the write changed what stands there.
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

/// How a call ended that was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Landing {
    /// Its caller has the answer.
    InTime,
    /// Applied, and nobody waited for the answer any more.
    AppliedLate,
    /// Refused or failed, and nobody waited for the answer any more.
    RefusedLate,
}

/// A call under way: it is carried out when it is polled, which is when it arrives.
pub(super) type Parcel = Pin<Box<dyn Future<Output = Landing> + Send>>;

/// Everything under way, in the order in which it arrives: by its time, then as sent.
#[derive(Default)]
pub(super) struct Network {
    under_way: BTreeMap<(Instant, u64), Parcel>,
    sent: u64,
}

impl Network {
    /// Puts `parcel` under way; until [`Instant::NEVER`] means that it does not arrive by itself.
    pub(super) fn send(&mut self, arrives_at: Instant, parcel: Parcel) {
        self.sent += 1;
        self.under_way.insert((arrives_at, self.sent), parcel);
    }

    /// The next one that has arrived by `now`.
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

    /// Takes out all that is under way, for good. Callers that wait for it see their answer's sender dropped.
    pub(super) fn take(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.under_way).into_values().collect()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.under_way.keys()).finish()
    }
}
