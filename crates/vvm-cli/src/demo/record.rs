//! The record, looked at from outside: what a standby sees.

use super::{
    candidate::NAME,
    event::{Lane, What},
};
use ielections::{Limits, ReadError, Slot, TtlStorage as _, Vacant};
use std::{io, num::NonZeroU32, sync::Arc};
use tokio::runtime::{self, Runtime};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, OpenError, SlotNumber};

/// The record that the candidates share.
#[derive(Debug)]
pub(crate) struct Record {
    runtime: Runtime,
    storage: ElectionsTtlStorage,
    key: ElectionKey,
    seen: Slot,
}

/// Why the record can't be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The storage could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What opening needs of the system.
    #[error("the system refuses what the demo needs: {0}")]
    System(#[from] io::Error),
}

impl Record {
    /// Opens the storage at `url`.
    ///
    /// # Errors
    /// When it can't be opened.
    pub(crate) fn open(url: &str) -> Result<Self, RecordError> {
        let runtime = runtime::Builder::new_current_thread().build()?;
        let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
        let storage = ElectionsTtlStorage::new(runtime.block_on(vvm_storage::open(url, clock))?);
        let slot = SlotNumber::new(NonZeroU32::MIN);
        let key = ElectionKey { cluster: ClusterName::from(NAME), slot };
        Ok(Self { runtime, storage, key, seen: Slot::Vacant(Vacant::default()) })
    }

    /// What the storage can carry.
    pub(crate) fn limits(&self) -> Limits {
        self.storage.limits()
    }

    /// What has changed since the last look.
    ///
    /// # Errors
    /// When the storage refuses for good. One that doesn't answer shows nothing new.
    pub(crate) fn look(&mut self) -> Result<Option<(Lane, What)>, ReadError> {
        let slot = match self.runtime.block_on(self.storage.get(&self.key)) {
            Ok(slot) => slot,
            Err(ReadError::Unavailable(_)) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        let change = change(&self.seen, &slot);
        self.seen = slot;
        Ok(change)
    }

    /// Ends what the storage has running.
    pub(crate) fn close(self) {
        self.runtime.block_on(self.storage.close());
    }
}

/// What happened between two looks. Holders other than the candidates are nobody's business here.
fn change(before: &Slot, after: &Slot) -> Option<(Lane, What)> {
    match (before.entry(), after.entry()) {
        (Some(before), Some(after)) if before.version == after.version => None,
        (Some(before), Some(after)) if before.epoch == after.epoch => {
            Some((Lane::of_holder(after.holder.as_str())?, What::Renewed(after.epoch)))
        }
        (_, Some(after)) => Some((Lane::of_holder(after.holder.as_str())?, What::Elected(after.epoch))),
        (Some(before), None) => {
            Some((Lane::of_holder(before.holder.as_str())?, What::Released(before.epoch)))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rehearsal, *};
    use ielections::{Entry, Holder, Incarnation, Version};

    fn held(holder: &str, count: u64, write: u64) -> Slot {
        let version = Version { incarnation: Incarnation::from_bytes([count as u8; 16]), write };
        let (holder, epoch) = (Holder::new(holder).unwrap(), rehearsal::epoch(count));
        Slot::Held { entry: Entry { holder, version, ttl: rehearsal::ttl(), epoch }, proven_age: None }
    }

    #[test]
    fn two_looks_tell_what_happened_between_them() {
        let vacant = Slot::Vacant(Vacant::default());
        let epoch = rehearsal::epoch;
        let table = [
            (&vacant, &vacant, None),
            (&vacant, &held("A", 1, 0), Some((Lane::A, What::Elected(epoch(1))))),
            (&held("A", 1, 0), &held("A", 1, 0), None),
            (&held("A", 1, 0), &held("A", 1, 3), Some((Lane::A, What::Renewed(epoch(1))))),
            (&held("A", 1, 3), &held("B", 2, 0), Some((Lane::B, What::Elected(epoch(2))))),
            (&held("A", 1, 3), &held("A", 2, 0), Some((Lane::A, What::Elected(epoch(2))))),
            (&held("C", 3, 3), &vacant, Some((Lane::C, What::Released(epoch(3))))),
            (&vacant, &held("somebody:1", 4, 0), None),
        ];
        for (before, after, expected) in table {
            assert_eq!(change(before, after), expected, "{before:?} {after:?}");
        }
    }
}
