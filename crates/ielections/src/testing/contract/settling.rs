//! What became of a write, resolved as a leader would (I7): a storage that is busy may leave reads unanswered
//! and writes unknown.
//!
//! Nothing here counts attempts. A case has an end of its own, [`LONGEST_CASE`](super::LONGEST_CASE).

use crate::{Claim, Entry, Key, ReadError, Slot, Swap, TtlStorage, WriteError};

/// What became of a write.
pub(super) enum Settled {
    Applied,
    /// Refused; this stands there.
    Refused(Slot),
    /// Not applied so far, and perhaps later: this stands there.
    Undecided(Slot),
}

/// What stands there, waiting out a storage that is busy.
pub(super) async fn standing<K: Key>(handle: &dyn TtlStorage<K>, key: &K) -> Slot {
    loop {
        match handle.get(key).await {
            Ok(slot) => return slot,
            Err(ReadError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads back what is unknown.
pub(super) async fn settled<K: Key>(
    outcome: Result<Result<(), Slot>, WriteError>,
    ours: &Entry,
    handle: &dyn TtlStorage<K>,
    key: &K,
) -> Settled {
    match outcome {
        Ok(Ok(())) => Settled::Applied,
        Ok(Err(slot)) => Settled::Refused(slot),
        Err(WriteError::NotApplied(_)) => Settled::Refused(standing(handle, key).await),
        Err(WriteError::Unknown(_)) => match standing(handle, key).await {
            slot if slot.entry() == Some(ours) => Settled::Applied,
            slot => Settled::Undecided(slot),
        },
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn of_claim(claim: Claim) -> Result<(), Slot> {
    match claim {
        Claim::Claimed => Ok(()),
        Claim::Refused(slot) => Err(slot),
    }
}

pub(super) fn of_swap(swap: Swap) -> Result<(), Slot> {
    match swap {
        Swap::Swapped => Ok(()),
        Swap::Mismatch(slot) => Err(slot),
    }
}
