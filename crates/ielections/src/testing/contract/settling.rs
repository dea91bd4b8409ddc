//! Calls on a busy storage, which may leave reads unanswered and writes unknown. Outcomes are resolved as a
//! leader does (I7). [`LONGEST_CASE`](super::LONGEST_CASE) bounds the attempts.

use crate::{Claim, Entry, Key, ReadError, Slot, Swap, TtlStorage, WriteError};

/// The outcome of a write.
pub(super) enum Settled {
    Applied,
    /// Refused; this is the slot.
    Refused(Slot),
    /// Not applied so far, and may still be; this is the slot.
    Undecided(Slot),
}

/// Reads the slot, until the storage answers.
pub(super) async fn standing<K: Key>(handle: &dyn TtlStorage<K>, key: &K) -> Slot {
    loop {
        match handle.get(key).await {
            Ok(slot) => return slot,
            Err(ReadError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Resolves an unknown outcome by a read-back.
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
