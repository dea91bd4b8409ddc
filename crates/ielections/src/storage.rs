//! [`TtlStorage`]: the storage of elections. The suite (feature `testing`) tests every sentence of its contract.

pub(crate) mod documents;

use crate::record::{Entry, Epoch, Incarnation, Slot, Vacant};
use async_trait::async_trait;
use documents::DocumentStorage;
use std::{
    error::Error,
    fmt::{Debug, Display},
    hash::Hash,
    time::Duration,
};

/// The limits of a driver. The layer above checks them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The shortest TTL that the driver's round trips allow.
    pub min_ttl: Duration,
    /// The longest key in bytes, including prefixes. At least [`Limits::LEAST_KEY_BYTES`].
    pub max_key_bytes: usize,
    /// The longest holder, in bytes. Records have no other part whose length varies.
    pub max_value_bytes: usize,
    /// How many keys one [`TtlStorage::scan`] reads at a time.
    pub scan_batch: usize,
}

impl Limits {
    /// The least `max_key_bytes`: a host name as cluster (255 bytes, RFC 1035), a slot, prefixes and escapes.
    pub const LEAST_KEY_BYTES: usize = 512;
}

/// The outcome of a claim ([`TtlStorage::insert_if_not_exist`], [`TtlStorage::take_over`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Applied.
    Claimed,
    /// Not applied; this is the slot.
    Refused(Slot),
}

/// The outcome of a renewal ([`TtlStorage::compare_and_swap`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Swap {
    /// Applied.
    Swapped,
    /// Not applied; this is the slot.
    Mismatch(Slot),
}

/// The outcome of a release ([`TtlStorage::compare_and_delete`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delete {
    /// Applied: the slot is vacant, and its epoch is kept.
    Deleted,
    /// Not applied; this is the slot.
    Mismatch(Slot),
}

/// A storage of leadership records.
///
/// The rest of the project calls its writes by what a leader does: `insert_if_not_exist` and `take_over` are
/// the two kinds of *claim*, `compare_and_swap` is a *renewal*, and `compare_and_delete` a *release*.
///
/// ```
/// use ielections::{Claim, Delete, Entry, Epoch, Holder, Incarnation, Swap, Ttl, TtlStorage, Vacant, Version};
/// use std::{num::NonZeroU32, sync::Arc};
/// use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Arc::new(vvm_clock::SystemClock::start()?);
/// let storage = ElectionsTtlStorage::new(vvm_storage::open("mem:", clock).await?);
/// let key = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::MIN) };
/// let first = Entry {
///     holder: Holder::new("10.0.0.7")?,
///     version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 },
///     ttl: Ttl::DEFAULT,
///     epoch: Epoch::new(1)?,
/// };
/// let claim = storage.insert_if_not_exist(&key, Vacant { last_epoch: None }, &first).await?;
/// assert_eq!(claim, Claim::Claimed);
/// let renewed = first.renewed(first.version.next());
/// assert_eq!(storage.compare_and_swap(&key, &first, &renewed).await?, Swap::Swapped);
/// assert_eq!(storage.get(&key).await?.entry(), Some(&renewed));
/// let release = storage.compare_and_delete(&key, renewed.incarnation(), renewed.epoch).await?;
/// assert_eq!(release, Delete::Deleted);
/// # Ok(())
/// # }
/// ```
///
/// # Contract
/// 1. Every write is one atomic, linearizable step on one key: applied whole or not at all.
/// 2. `insert_if_not_exist` applies exactly if the slot is vacant *and* `vacant.last_epoch` is its last epoch.
/// 3. `take_over` and `compare_and_swap` apply exactly if the slot holds the version (and epoch) named.
/// 4. `compare_and_delete` applies exactly if the slot holds the incarnation and epoch named, in any version.
/// 5. The next `get` returns the record that was applied, byte for byte: holder, version, TTL and epoch.
/// 6. A slot's last epoch survives release, expiry, closing and reopening; a storage never shows a smaller one.
/// 7. *Never early* (I5): a record stays `Held` until a write replaces or deletes it. No TTL ends it. A
///    `proven_age` is never larger than the time since the call that wrote the version was issued.
/// 8. A refused write returns the slot, as a `get` in its place would have.
/// 9. A write error is [`WriteError::NotApplied`] only if the write is not applied and never will be.
///    Everything ambiguous, such as a time-out, is [`WriteError::Unknown`].
/// 10. No write of one key changes another key, whatever bytes the keys have.
///
/// `Fatal` ends a candidacy, so it is for what only an operator corrects, such as the schema. Credentials, rights
/// and clocks may be in order a moment later. When a storage is opened, they are refused for good. Later they are
/// `NotApplied` or `Unavailable`, with a cause that says what to do. `Fatal` concerns this process alone: a
/// leader continues to renew, since no other candidate can claim by that. `Replaced` is for a driver that finds
/// itself cut off from the storage that the others use, for example because its file was replaced: a leader has
/// lost at once. A driver that can't find out needs neither, since an epoch that went back shows it.
///
/// # Cancel safety
/// Dropping the future of a write is the same as [`WriteError::Unknown`]: it may still be applied, even
/// later. Reads may be dropped at will.
#[async_trait]
pub trait TtlStorage<K: Key>: Debug + Send + Sync + 'static {
    /// The limits of this driver.
    fn limits(&self) -> Limits;

    /// Claims a vacant slot. `entry.epoch` is larger than `vacant.last_epoch`: the caller guarantees it.
    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError>;

    /// Claims the slot of a dead leader: replaces exactly the version `observed`. `entry.epoch` is larger than
    /// `observed.epoch`. The caller has observed the record for its TTL: the driver does not check expiry.
    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError>;

    /// Renews: replaces exactly the version `held` by `entry`, which has the same epoch and incarnation.
    /// Holder and TTL may be others: the whole record is replaced.
    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError>;

    /// Releases: makes the slot vacant, in any version of the record. The epoch survives.
    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError>;

    /// Reads the slot; linearizable.
    async fn get(&self, key: &K) -> Result<Slot, ReadError>;

    /// Reads the slots, in the order of `keys`. Cheap, and may be stale. That is safe for a candidate: a
    /// version that it sees was written before.
    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError>;

    /// Reads the slots into `seen`, as [`scan`](Self::scan) does. A slot that can't be read in time stays
    /// `None` and does not keep the others from being read. Fails if a slot was not read.
    ///
    /// # Cancel safety
    /// After a drop, `seen` has the slots that were read so far.
    async fn scan_some(&self, keys: &[K], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let slots = self.scan(keys).await?;
        seen.iter_mut().zip(slots).for_each(|(seen, slot)| *seen = Some(slot));
        Ok(())
    }

    /// Whether a release will cause a hint ([`Elections::look_now`](crate::Elections::look_now)) at once, as
    /// far as is known. A campaign then reads less often: a held slot when its renewal is due.
    ///
    /// If the hint does not come, the release is noticed later, by up to
    /// [`Terms::LONGEST_QUIET`](crate::Terms::LONGEST_QUIET). Nothing else depends on the answer.
    fn hints_of_releases(&self) -> bool {
        false
    }

    /// The documents beside the records, if this storage keeps any.
    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        None
    }

    /// Ends the driver's threads and sockets (I9). Every call after it fails with `Fatal`.
    async fn close(&self);
}

/// A leadership key. Logs and the deadman's last message show it. Ordered, so that a simulation is reproducible.
pub trait Key: Clone + Eq + Ord + Hash + Debug + Display + Send + Sync + 'static {}
impl<K: Clone + Eq + Ord + Hash + Debug + Display + Send + Sync + 'static> Key for K {}

/// The cause below a storage error.
pub type Cause = Box<dyn Error + Send + Sync>;

/// A read failed. Reads have no `Unknown`: the compiler keeps I7 out of the read paths.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The storage did not answer, or denied the read. Try again.
    #[error("the read failed: {0}")]
    Unavailable(#[source] Cause),
    /// Schema or configuration are wrong. Retrying is pointless until the operator corrects them. It says nothing
    /// about the record: no other candidate can have claimed it by that.
    #[error("the storage refused for good: {0}")]
    Fatal(#[source] Cause),
    /// The storage was deleted, replaced or restored since it was opened. **Another process may lead
    /// already** in the new one, so a leader has lost its leadership at once.
    #[error("the storage was replaced: {0}")]
    Replaced(#[source] Cause),
}

/// A write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Not applied, and never will be. Try again.
    #[error("not applied: {0}")]
    NotApplied(#[source] Cause),
    /// May have been applied, or may still be. A linearizable read-back settles it. So does a later write of
    /// the same leader, whether it succeeds or is refused (I7).
    #[error("unknown whether applied: {0}")]
    Unknown(#[source] Cause),
    /// Not applied. Retrying is pointless until the operator corrects schema or configuration. It says nothing
    /// about the record: no other candidate can have claimed it by that.
    #[error("refused for good: {0}")]
    Fatal(#[source] Cause),
    /// The storage was deleted, replaced or restored since it was opened. **Another process may lead already**
    /// in the new one, so a leader has lost its leadership at once. Whether the write was applied is unknown
    /// (I7), as it is whether to the old storage or to the new one.
    #[error("the storage was replaced: {0}")]
    Replaced(#[source] Cause),
}
