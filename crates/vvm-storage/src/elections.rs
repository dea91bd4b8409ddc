//! [`ElectionsTtlStorage`]: elections on the sysvvm keyspace. Maps keys to partitions, and refuses what exceeds limits.

mod late_end;
mod requests;

pub use late_end::LateEnd;

use crate::{
    key::{ClusterName, ElectionKey, Partition},
    step::{Step, StepOutcome},
    sysvvm::{Description, MOST_LISTED, NoDocuments, OpenedStorage, SysVvmStorage},
};
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use ielections::{
    BatchOutcome, BeyondDocumentLimits, Claim, Delete, Document, DocumentId, DocumentLimits, DocumentStorage,
    DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Holder, Incarnation, Limits, Page,
    ReadError, Scan, Slot, Swap, Ttl, TtlStorage, Vacant, WriteError,
};
use std::{future::pending, num::NonZeroU32, sync::Arc, time::Duration};

/// A scan of 100,000 slots has about 100 batches, to fit into an attempt and not to reach the server all at once.
const BATCHES: usize = 8;

/// The storage of elections on a database, with settings and requests beside the records. Calls fail as it does.
///
/// # Cancel safety
/// A read may be dropped at any time. A write that is dropped may or may not have been applied, and may be repeated.
#[derive(Clone, Debug)]
pub struct ElectionsTtlStorage {
    sysvvm: Arc<dyn SysVvmStorage>,
    limits: Limits,
}

impl ElectionsTtlStorage {
    /// Elections on this database.
    pub fn new(sysvvm: Arc<dyn SysVvmStorage>) -> Self {
        let limits = sysvvm.limits();
        Self { sysvvm, limits }
    }

    /// Returns where the storage is and whether opening it created it, if the driver knows.
    pub fn opened(&self) -> Option<OpenedStorage> {
        self.sysvvm.opened()
    }

    /// Describes the database.
    pub async fn describe(&self) -> Result<Description, ReadError> {
        self.sysvvm.describe().await
    }

    /// Returns how long ago each record was written by the database's own clock. See [`SysVvmStorage::shown_ages`].
    pub async fn shown_ages(&self, keys: &[ElectionKey]) -> Result<Vec<Option<Duration>>, ReadError> {
        let partitions = keys.iter().map(|key| self.for_read(key)).collect::<Result<Vec<_>, _>>()?;
        let mut ages = Vec::with_capacity(keys.len());
        for batch in partitions.chunks(self.limits.scan_batch.max(1)) {
            ages.extend(self.sysvvm.shown_ages(batch).await?);
        }
        Ok(ages)
    }

    async fn claim(&self, key: &ElectionKey, from: Slot, entry: &Entry) -> Result<Claim, WriteError> {
        let at = self.for_write(key, Some(entry))?;
        let claimed = self.sysvvm.commit(at, Step::Claim { from, to: entry.clone() }).await?;
        Ok(claimed.refusal()?.map_or(Claim::Claimed, Claim::Refused))
    }

    async fn peek_all(&self, partitions: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        if partitions.len() <= self.limits.scan_batch {
            return self.sysvvm.peek(partitions).await;
        }
        let mut seen = vec![None; partitions.len()];
        self.peek_some(partitions, &mut seen).await?;
        // Without an error, none is missing.
        Ok(seen.into_iter().flatten().collect())
    }

    /// Reads slots in batches of the driver's size, [`BATCHES`] at once. A slot that can't be read stays `None`.
    /// Dropped, it leaves in `seen` what was read so far.
    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let size = self.limits.scan_batch.max(1);
        if at.len() <= size {
            return self.sysvvm.peek_some(at, seen).await;
        }
        let batches = at.chunks(size).zip(seen.chunks_mut(size));
        let batches = batches.map(|(at, seen)| self.sysvvm.peek_some(at, seen)).collect::<Vec<_>>();
        let mut batches = stream::iter(batches).buffer_unordered(BATCHES);
        let mut outcome = Ok(());
        while let Some(read) = batches.next().await {
            match read {
                Ok(()) => {}
                Err(failure @ ReadError::Unavailable(_)) => outcome = outcome.and(Err(failure)),
                Err(refusal) => return Err(refusal),
            }
        }
        outcome
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl TtlStorage<ElectionKey> for ElectionsTtlStorage {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.claim(key, Slot::Vacant(vacant), entry).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.claim(key, Slot::Held { entry: observed.clone(), proven_age: None }, entry).await
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        let at = self.for_write(key, Some(entry))?;
        let renewed = self.sysvvm.commit(at, Step::renew(held, entry)).await?;
        Ok(renewed.refusal()?.map_or(Swap::Swapped, Swap::Mismatch))
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let at = self.for_write(key, None)?;
        let released = self.sysvvm.commit(at, Step::release(incarnation, epoch)).await?;
        if let Some(stands) = released.refusal()? {
            return Ok(Delete::Mismatch(stands));
        }
        self.announce(&key.cluster).await;
        Ok(Delete::Deleted)
    }

    async fn get(&self, key: &ElectionKey) -> Result<Slot, ReadError> {
        self.sysvvm.read(self.for_read(key)?).await
    }

    async fn scan(&self, keys: &[ElectionKey]) -> Result<Vec<Slot>, ReadError> {
        let partitions = keys.iter().map(|key| self.for_read(key)).collect::<Result<Vec<_>, _>>()?;
        self.peek_all(&partitions).await
    }

    async fn scan_some(&self, keys: &[ElectionKey], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let partitions = keys.iter().map(|key| self.for_read(key)).collect::<Result<Vec<_>, _>>()?;
        self.peek_some(&partitions, seen).await
    }

    /// A host that passes hints on says so itself.
    fn hints_of_releases(&self) -> bool {
        false
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<ElectionKey>> {
        self.sysvvm.document_limits().map(|_| self as _)
    }

    async fn close(&self) {
        self.sysvvm.close().await;
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the count of batches of {key} is damaged in this storage: it is {found}. Find out what wrote it; \
     restore a backup with all candidates stopped"
)]
struct DamagedCount {
    key: ElectionKey,
    found: DocumentVersion,
}

fn check_count(key: &ElectionKey, found: DocumentVersion) -> Result<(), DamagedCount> {
    if found.get() < DocumentVersion::MAX { Ok(()) } else { Err(DamagedCount { key: key.clone(), found }) }
}

impl ElectionsTtlStorage {
    fn limits_for_read(&self) -> Result<DocumentLimits, ReadError> {
        self.sysvvm.document_limits().ok_or_else(|| ReadError::Fatal(NoDocuments.into()))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DocumentStorage<ElectionKey> for ElectionsTtlStorage {
    fn document_limits(&self) -> DocumentLimits {
        let nothing = DocumentLimits {
            max_id_bytes: 0,
            max_body_bytes: 0,
            max_batch: 0,
            max_batch_bytes: 0,
            max_page: 0,
        };
        self.sysvvm.document_limits().unwrap_or(nothing)
    }

    async fn write_documents(
        &self,
        key: &ElectionKey,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let none = || WriteError::Fatal(NoDocuments.into());
        let limits = self.sysvvm.document_limits().ok_or_else(none)?;
        let partition = self.for_write(key, None)?;
        check_count(key, fence.after).map_err(|damaged| WriteError::Fatal(damaged.into()))?;
        let beyond = |beyond: BeyondDocumentLimits| WriteError::Fatal(beyond.into());
        limits.check(batch).map_err(beyond)?;
        Ok(match self.sysvvm.commit(partition, Step::batch(fence, batch)).await? {
            StepOutcome::Applied => BatchOutcome::Written,
            StepOutcome::Refused(_) => BatchOutcome::Refused,
        })
    }

    async fn fence_state(&self, key: &ElectionKey) -> Result<FenceState, ReadError> {
        let state = self.sysvvm.fence_state(&self.for_read(key)?).await?;
        check_count(key, state.last).map_err(|damaged| ReadError::Fatal(damaged.into()))?;
        Ok(state)
    }

    async fn document(&self, key: &ElectionKey, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.limits_for_read()?.check_id(id).map_err(|beyond| ReadError::Fatal(beyond.into()))?;
        self.sysvvm.document(&self.for_read(key)?, id).await
    }

    async fn scan_documents(&self, key: &ElectionKey, scan: &Scan) -> Result<Page, ReadError> {
        let within = Scan { limit: scan.limit.clamp(1, self.limits_for_read()?.max_page), ..scan.clone() };
        self.sysvvm.scan_documents(&self.for_read(key)?, &within).await
    }
}

impl ElectionsTtlStorage {
    async fn announce(&self, cluster: &ClusterName) {
        if let Some(hints) = self.sysvvm.hints() {
            hints.announce(&cluster.slot_count_partition()).await;
        }
    }

    /// Waits for a hint that another process released a slot of the cluster or made a request. Never returns if the
    /// storage has no hints. May be dropped and called again at will. A candidate then looks at once
    /// ([`Elections::look_now`](ielections::Elections::look_now)). Nothing else may follow from a hint: it may be lost,
    /// late, repeated or false.
    pub async fn hinted(&self, cluster: &ClusterName) {
        match self.sysvvm.hints() {
            Some(hints) => hints.hinted(&cluster.slot_count_partition()).await,
            None => pending().await,
        }
    }

    /// Whether hints about the cluster arrive, as far as this process knows. Only while
    /// [`hinted`](Self::hinted) is called time and again.
    pub fn listens(&self, cluster: &ClusterName) -> bool {
        self.sysvvm.hints().is_some_and(|hints| hints.listens(&cluster.slot_count_partition()))
    }
}

/// A value exceeds the driver's [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BeyondLimits {
    /// The key, prefixes included.
    #[error("a key of {bytes} bytes is too long for this storage, which takes {most}: choose a shorter name")]
    Key {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The holder.
    #[error(
        "a holder of {bytes} bytes is too long for this storage, which takes {most}: choose a shorter one"
    )]
    Holder {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The TTL.
    #[error(
        "a TTL of {ttl} is too short for this storage, whose writes need {} or more: choose a longer one",
        vvm_clock::DisplayDuration(*least)
    )]
    Ttl {
        /// The requested TTL.
        ttl: Ttl,
        /// The shortest TTL of the driver.
        least: Duration,
    },
}

impl ElectionsTtlStorage {
    fn for_write(&self, key: &ElectionKey, entry: Option<&Entry>) -> Result<Partition, WriteError> {
        entry
            .map_or(Ok(()), |entry| self.check_entry(entry))
            .and_then(|()| self.check_partition(key.partition()))
            .map_err(|beyond| WriteError::Fatal(beyond.into()))
    }

    fn for_read(&self, key: &ElectionKey) -> Result<Partition, ReadError> {
        self.check_partition(key.partition()).map_err(|beyond| ReadError::Fatal(beyond.into()))
    }

    fn check_partition(&self, partition: Partition) -> Result<Partition, BeyondLimits> {
        let (bytes, most) = (partition.as_bytes().len(), self.limits.max_key_bytes);
        if bytes > most { Err(BeyondLimits::Key { bytes, most }) } else { Ok(partition) }
    }

    fn check_holder(&self, holder: &Holder) -> Result<(), BeyondLimits> {
        let (bytes, most) = (holder.as_str().len(), self.limits.max_value_bytes);
        if bytes > most { Err(BeyondLimits::Holder { bytes, most }) } else { Ok(()) }
    }

    fn check_entry(&self, entry: &Entry) -> Result<(), BeyondLimits> {
        self.check_holder(&entry.holder)?;
        let (ttl, least) = (entry.ttl, self.limits.min_ttl);
        if ttl.get() < least {
            return Err(BeyondLimits::Ttl { ttl, least });
        }
        Ok(())
    }
}

/// Why a slot count could not be settled.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// Another candidate settled another count before.
    #[error(
        "{cluster} has {} in this storage, not {wanted}: start each candidate with that count (--slots \
         {stands}), or choose another name", counted(*stands)
    )]
    Differs {
        /// The cluster.
        cluster: ClusterName,
        /// The count in the storage.
        stands: NonZeroU32,
        /// The requested count.
        wanted: NonZeroU32,
    },
    /// The stored value is not a slot count.
    #[error(transparent)]
    Corrupt(#[from] SettingCorrupt),
    /// The storage failed. Settling again is safe, even if this attempt was applied.
    #[error(transparent)]
    Storage(#[from] WriteError),
}

fn counted(slots: NonZeroU32) -> String {
    if slots == NonZeroU32::MIN { "1 slot".into() } else { format!("{slots} slots") }
}

/// The stored value of a cluster's slot count is not one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the slot count of cluster {cluster} in this storage is damaged: its value is {}",
    .found.escape_ascii()
)]
pub struct SettingCorrupt {
    /// The cluster.
    pub cluster: ClusterName,
    /// The bytes found.
    pub found: Vec<u8>,
}

impl ElectionsTtlStorage {
    /// Stores the cluster's slot count. All members must use the same: with different counts they would campaign for
    /// different slots, and work that needs one leader could have two.
    pub async fn settle_slot_count(
        &self,
        cluster: &ClusterName,
        wanted: NonZeroU32,
    ) -> Result<(), SettleError> {
        let partition = self.slot_count_partition(cluster).map_err(|e| WriteError::Fatal(e.into()))?;
        let settled = self.sysvvm.commit(partition, Step::settle(&wanted.get().to_be_bytes())).await?;
        let Some(found) = settled.settled_before()? else { return Ok(()) };
        match decode(cluster, found)? {
            stands if stands == wanted => Ok(()),
            stands => Err(SettleError::Differs { cluster: cluster.clone(), stands, wanted }),
        }
    }

    /// Returns the cluster's slot count, if it was settled. Fails with [`ReadError::Fatal`] if the value is not one.
    pub async fn slot_count(&self, cluster: &ClusterName) -> Result<Option<NonZeroU32>, ReadError> {
        let partition = self.slot_count_partition(cluster).map_err(|e| ReadError::Fatal(e.into()))?;
        match self.sysvvm.setting(partition).await? {
            None => Ok(None),
            Some(found) => decode(cluster, found).map(Some).map_err(|e| ReadError::Fatal(e.into())),
        }
    }

    /// Returns the names with a settled slot count, sorted, and whether there may be more than these; `None` if this
    /// storage can't list them. A count is `None` if the storage lists no values, or a damaged one. May be stale.
    pub async fn names(&self) -> Result<Option<(Vec<ListedName>, bool)>, ReadError> {
        let Some(settings) = self.sysvvm.settings().await? else { return Ok(None) };
        let may_have_more = settings.len() >= MOST_LISTED;
        let named = settings.into_iter().filter_map(|(at, value)| {
            let cluster = ClusterName::of_slot_count(&at)?;
            let count = value.and_then(|value| decode(&cluster, value).ok());
            Some((cluster, count))
        });
        let mut names = named.collect::<Vec<_>>();
        names.sort_unstable();
        Ok(Some((names, may_have_more)))
    }

    fn slot_count_partition(&self, cluster: &ClusterName) -> Result<Partition, BeyondLimits> {
        self.check_partition(cluster.slot_count_partition())
    }
}

/// A name, and its slot count if that is known.
pub type ListedName = (ClusterName, Option<NonZeroU32>);

fn decode(cluster: &ClusterName, found: Vec<u8>) -> Result<NonZeroU32, SettingCorrupt> {
    <[u8; 4]>::try_from(found.as_slice())
        .ok()
        .and_then(|bytes| NonZeroU32::new(u32::from_be_bytes(bytes)))
        .ok_or_else(|| SettingCorrupt { cluster: cluster.clone(), found })
}
