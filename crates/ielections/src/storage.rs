//! [`TtlStorage`]: what an election needs of a database. The contract stands here, sentence by sentence, and
//! the contract suite (feature `testing`) tests each of them.

pub(crate) mod document;
pub(crate) mod document_limits;
pub(crate) mod document_storage;
pub(crate) mod document_write;
mod error;
mod key;
mod layer;

pub use error::{Cause, ReadError, WriteError};
pub use key::Key;
pub use layer::Layer;

use crate::record::{Entry, Epoch, Incarnation, Slot, Vacant};
use async_trait::async_trait;
use document_storage::DocumentStorage;
use std::{fmt::Debug, time::Duration};

/// What a driver can carry. Stated once, checked by the layer above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The shortest TTL that the driver's round trips leave room for.
    pub min_ttl: Duration,
    /// The longest key, in bytes, after prefixes. At least [`Limits::LEAST_KEY_BYTES`].
    pub max_key_bytes: usize,
    /// The longest value, in bytes.
    pub max_value_bytes: usize,
    /// How many keys one [`TtlStorage::scan`] asks for at a time.
    pub scan_batch: usize,
}

impl Limits {
    /// What every storage must be able to carry: a cluster's name as long as a host's may be (255 bytes, RFC
    /// 1035), a slot, prefixes, and escapes.
    pub const LEAST_KEY_BYTES: usize = 512;
}

/// The outcome of a claim ([`TtlStorage::insert_if_not_exist`], [`TtlStorage::take_over`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The entry stands there now.
    Claimed,
    /// Nothing was written; this is what stands there.
    Refused(Slot),
}

/// The outcome of a renewal ([`TtlStorage::compare_and_swap`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Swap {
    /// The entry stands there now.
    Swapped,
    /// Nothing was written; this is what stands there.
    Mismatch(Slot),
}

/// The outcome of a release ([`TtlStorage::compare_and_delete`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delete {
    /// The slot is vacant now, and its epoch is kept.
    Deleted,
    /// Nothing was written; this is what stands there.
    Mismatch(Slot),
}

/// The storage that an election needs (the reference's ITTLStorage).
///
/// # Contract
/// 1. Every write is one atomic, linearizable step on one key: applied whole or not at all.
/// 2. `insert_if_not_exist` applies exactly if the slot is vacant *and* its last epoch is
///    `vacant.last_epoch`.
/// 3. `take_over` and `compare_and_swap` apply exactly if the slot holds the version (and epoch) named.
/// 4. `compare_and_delete` applies exactly if the slot holds the incarnation and epoch named, whatever its
///    version.
/// 5. What applied is what the next `get` finds, byte for byte: holder, version, TTL and epoch.
/// 6. A slot's last epoch survives release, expiry, closing and reopening; a storage never shows a smaller
///    one again.
/// 7. *Never early* (I5): a record stays `Held` until somebody's write replaces or deletes it. No TTL ends
///    it, and a `proven_age` is never larger than the time since the call that wrote the version was issued.
/// 8. A refused write returns what stands there, as a `get` in its place would have.
/// 9. A write error is [`WriteError::NotApplied`] only if the write is not applied and never will be.
///    Everything ambiguous, a time-out above all, is [`WriteError::Unknown`].
/// 10. Keys don't meet: no write of one key changes another, whatever bytes the keys have.
///
/// Which error is for whom: `Fatal` is said to *us* (credentials, schema), and a leader goes on trying, since
/// nobody else got in by it. A driver that notices that it is cut off from what *others* use (its file was
/// replaced) says `Replaced`, and a leader is lost at once. One that can't notice says neither: an epoch that
/// went back shows by itself.
///
/// # Cancel safety
/// Dropping the future of a write is the same as [`WriteError::Unknown`]: it may still be applied, even
/// later. Reads may be dropped at will.
///
/// What stands before another storage and changes a few verbs implements [`Layer`] in its place.
#[async_trait]
pub trait TtlStorage<K: Key>: Debug + Send + Sync + 'static {
    /// What this driver can carry.
    fn limits(&self) -> Limits;

    /// Claims a vacant slot. `entry.epoch` is larger than `vacant.last_epoch`; the caller sees to that.
    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError>;

    /// Claims a slot from a leader that is dead: replaces exactly the version `observed`. `entry.epoch` is
    /// larger than `observed.epoch`. That the record has expired is for the caller to know (it has observed
    /// it for its TTL).
    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError>;

    /// Renews: replaces exactly the version `held` by `entry`, which has the same epoch and incarnation.
    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError>;

    /// Releases: makes the slot vacant, whatever the version. The epoch survives.
    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError>;

    /// What stands in the slot now; linearizable.
    async fn get(&self, key: &K) -> Result<Slot, ReadError>;

    /// What stands in the slots, in the order of `keys`. Cheap, may be stale: a hint, and safe as one, since
    /// a version that was seen was certainly written before it was seen.
    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError>;

    /// Reads what stands in the slots into `seen`, in the order of `keys`, as [`scan`](Self::scan) does. A
    /// slot that can't be read, or not in time, stays `None` and does not keep the others from being read.
    /// Fails if a slot was not read.
    ///
    /// # Cancel safety
    /// Dropped, it leaves in `seen` what was read so far.
    async fn scan_some(&self, keys: &[K], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let slots = self.scan(keys).await?;
        seen.iter_mut().zip(slots).for_each(|(seen, slot)| *seen = Some(slot));
        Ok(())
    }

    /// The documents beside the records, where this storage can fence some.
    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        None
    }

    /// Ends the driver's threads and sockets (I9). Every call after it fails with `Fatal`.
    async fn close(&self);
}
