//! [`ElectionsTtlStorage`]: elections on the sysvvm keyspace.
//!
//! Maps keys to partitions, and refuses what exceeds the driver's limits before it calls the driver. The
//! drivers know the databases; crate `ielections` decides when to claim and renew.

mod documents;
mod hints;
mod limits;
mod requests;
mod settings;

pub use limits::BeyondLimits;
pub use settings::{SettingCorrupt, SettleError};

use crate::{
    key::{ElectionKey, Partition},
    step::Step,
    sysvvm::{Description, Opened, SysVvmStorage},
};
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use ielections::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage,
    Vacant, WriteError,
};
use std::{sync::Arc, time::Duration};

/// How many batches of a scan are in flight. A scan of 100,000 slots has about 100 batches. They must fit
/// into an attempt, and the server must not get all at once.
const BATCHES: usize = 8;

/// The storage of elections on a database (the reference's `NewElectionsTTLStorage`).
#[derive(Clone, Debug)]
pub struct ElectionsTtlStorage {
    sysvvm: Arc<dyn SysVvmStorage>,
    /// Read once, because a driver's limits are constant.
    limits: Limits,
}

impl ElectionsTtlStorage {
    /// Elections on this database.
    pub fn new(sysvvm: Arc<dyn SysVvmStorage>) -> Self {
        let limits = sysvvm.limits();
        Self { sysvvm, limits }
    }

    /// Whether other processes can share the storage.
    pub fn shared_between_processes(&self) -> bool {
        self.sysvvm.shared_between_processes()
    }

    /// Returns where the storage is and whether opening it created it, if the driver knows.
    pub fn opened(&self) -> Option<Opened> {
        self.sysvvm.opened()
    }

    /// Describes the database.
    ///
    /// # Errors
    /// If the database does not answer.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn describe(&self) -> Result<Description, ReadError> {
        self.sysvvm.describe().await
    }

    /// Returns how long ago each record was written by the database's own clock. See
    /// [`SysVvmStorage::shown_ages`](crate::SysVvmStorage::shown_ages).
    ///
    /// # Errors
    /// If the database does not answer.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
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

    /// Reads all slots, or fails.
    async fn peek_all(&self, partitions: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        if partitions.len() <= self.limits.scan_batch {
            return self.sysvvm.peek(partitions).await;
        }
        let mut seen = vec![None; partitions.len()];
        self.peek_some(partitions, &mut seen).await?;
        // Without an error, none is missing.
        Ok(seen.into_iter().flatten().collect())
    }

    /// Reads slots in batches of the driver's size, [`BATCHES`] at once. A slot that can't be read stays
    /// `None`.
    ///
    /// # Cancel safety
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

    fn documents(&self) -> Option<&dyn DocumentStorage<ElectionKey>> {
        self.sysvvm.document_limits().map(|_| self as _)
    }

    async fn close(&self) {
        self.sysvvm.close().await;
    }
}
