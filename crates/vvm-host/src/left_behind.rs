//! [`LeftBehind`]: the leadership of a process that died, and its release by the process that has proof.

use crate::{history, storage_inspector::StorageInspector};
use ielections::{Delete, Epoch, Incarnation, Slot, Timing, Ttl, TtlStorage as _, WriteError};
use vvm_clock::Instant;
use vvm_storage::{ElectionKey, SlotNumber};

/// See `Host::report_claims`.
pub(crate) type OnClaim = Box<dyn Fn(Option<LeftBehind>) + Send + Sync>;

/// The record that a process leaves behind if it dies: of its leadership, or of a claim whose outcome is
/// unknown.
///
/// The caller has proof that nothing of it works any more (I6). Each claim has an incarnation and an epoch of
/// its own, and the release names both, so it changes no record of another leadership (I2). What the dead
/// process had sent is refused afterwards: a renewal names a version that is gone, a batch a fence that has
/// fallen, a claim an earlier epoch (I7).
///
/// A claim that still is in the network when the release finds no record of it may be applied later. Nothing
/// works under that record, and it expires by its TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftBehind {
    /// The slot that it led.
    pub slot: SlotNumber,
    /// Its fencing token.
    pub epoch: Epoch,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The TTL of its record.
    pub ttl: Ttl,
}

impl LeftBehind {
    /// Releases the record, with `how` the leadership ended in the history before. The leadership was claimed
    /// at `since`, on this machine's clock, which does not jump: its end counts from there. Tries again for as
    /// long as the storage does not answer. Returns whether the slot is vacant by this release: the process may have
    /// released it itself, or another one may lead.
    ///
    /// # Errors
    /// If the storage refuses for good.
    ///
    /// # Cancel safety
    /// Dropped, the record is released or not.
    pub async fn release(
        &self,
        storage: &StorageInspector,
        how: &str,
        since: Instant,
    ) -> Result<bool, WriteError> {
        let Self { slot, epoch, incarnation, ttl } = *self;
        let key = ElectionKey { cluster: storage.cluster.clone(), slot };
        let clock = &storage.clock;
        if let Some(documents) = storage.storage.documents() {
            let lasted = clock.now().since(since);
            // Afterwards the fence would refuse it.
            tokio::select! {
                biased;
                () = history::write_end_of(documents, &key, (epoch, incarnation), (how, lasted)) => {}
                () = clock.sleep(history::end_timeout(ttl)) => {}
            }
        }
        let mut may_have_released = false;
        loop {
            match storage.storage.compare_and_delete(&key, incarnation, epoch).await {
                Ok(Delete::Deleted) => return Ok(true),
                Ok(Delete::Mismatch(Slot::Vacant(vacant))) => {
                    return Ok(may_have_released && vacant.last_epoch == Some(epoch));
                }
                Ok(Delete::Mismatch(_)) => return Ok(false),
                // A second release of one leadership changes nothing.
                Err(WriteError::Unknown(_)) => may_have_released = true,
                Err(WriteError::NotApplied(_)) => {}
                Err(refusal) => return Err(refusal),
            }
            clock.sleep(Timing::of(ttl).retry_pause()).await;
        }
    }
}
