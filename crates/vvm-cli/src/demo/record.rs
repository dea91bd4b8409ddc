//! The leader record, as seen from outside.

use super::{
    candidate::NAME,
    timeline::{CandidateId, What},
};
use ielections::{ReadError, Slot, TtlStorage as _, Vacant};
use std::{num::NonZeroU32, sync::Arc};
use tokio::runtime::Runtime;
use vvm_clock::SystemClock;
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, OpenError, SlotNumber};

/// The record that the candidates compete for.
#[derive(Debug)]
pub(super) struct Record {
    runtime: Runtime,
    pub(super) storage: ElectionsTtlStorage,
    key: ElectionKey,
    seen: Slot,
}

impl Record {
    /// Opens the storage at `url`.
    pub(super) fn open(url: &str, runtime: Runtime, clock: SystemClock) -> Result<Self, OpenError> {
        let storage = ElectionsTtlStorage::new(runtime.block_on(vvm_storage::open(url, Arc::new(clock)))?);
        let slot = SlotNumber::new(NonZeroU32::MIN);
        let key = ElectionKey { cluster: ClusterName::from(NAME), slot };
        Ok(Self { runtime, storage, key, seen: Slot::Vacant(Vacant::default()) })
    }

    /// Reads the record, and returns what has changed since the last call. Fails if the storage refuses for
    /// good; one that does not answer shows no change.
    pub(super) fn look(&mut self) -> Result<Option<(CandidateId, What)>, ReadError> {
        let slot = match self.runtime.block_on(self.storage.get(&self.key)) {
            Ok(slot) => slot,
            Err(ReadError::Unavailable(_)) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        let change = change(&self.seen, &slot);
        self.seen = slot;
        Ok(change)
    }

    /// Closes the storage.
    pub(super) fn close(self) {
        self.runtime.block_on(self.storage.close());
    }
}

/// Returns what happened between two reads.
fn change(before: &Slot, after: &Slot) -> Option<(CandidateId, What)> {
    let (entry, what) = match (before.entry(), after.entry()) {
        (Some(before), Some(after)) if before.version == after.version => return None,
        (Some(before), Some(after)) if before.epoch == after.epoch => (after, What::Renewed(after.epoch)),
        (_, Some(after)) => (after, What::Elected(after.epoch)),
        (Some(before), None) => (before, What::Released(before.epoch)),
        (None, None) => return None,
    };
    let id = CandidateId::ALL.into_iter().find(|id| id.name() == entry.holder.as_str())?;
    Some((id, what))
}
