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

use crate::{Description, ElectionKey, Opened, Partition, SysVvmStorage};
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use ielections::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage,
    Vacant, WriteError,
};
use std::{future::ready, pin::Pin, sync::Arc, time::Duration};

/// The future of a driver's verb. It is returned as it is where nothing follows it, because another `async
/// fn` around it would be another box. The lifetimes are those that `#[async_trait]` gives a method.
type BoxFuture<'call, T> = Pin<Box<dyn Future<Output = T> + Send + 'call>>;

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
        let partition = self.for_write(key, Some(entry))?;
        self.sysvvm.claim(partition, &Slot::Vacant(vacant), entry).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let partition = self.for_write(key, Some(entry))?;
        let observed = Slot::Held { entry: observed.clone(), proven_age: None };
        self.sysvvm.claim(partition, &observed, entry).await
    }

    fn compare_and_swap<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        key: &'life1 ElectionKey,
        held: &'life2 Entry,
        entry: &'life3 Entry,
    ) -> BoxFuture<'async_trait, Result<Swap, WriteError>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
    {
        match self.for_write(key, Some(entry)) {
            Ok(at) => self.sysvvm.renew(at, held, entry),
            Err(refusal) => Box::pin(ready(Err(refusal))),
        }
    }

    fn compare_and_delete<'life0, 'life1, 'async_trait>(
        &'life0 self,
        key: &'life1 ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> BoxFuture<'async_trait, Result<Delete, WriteError>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
    {
        match self.for_write(key, None) {
            Ok(at) if self.sysvvm.hints().is_none() => self.sysvvm.release(at, incarnation, epoch),
            Ok(at) => Box::pin(async move {
                let deleted = self.sysvvm.release(at, incarnation, epoch).await?;
                if deleted == Delete::Deleted {
                    self.announce(&key.cluster).await;
                }
                Ok(deleted)
            }),
            Err(refusal) => Box::pin(ready(Err(refusal))),
        }
    }

    fn get<'life0, 'life1, 'async_trait>(
        &'life0 self,
        key: &'life1 ElectionKey,
    ) -> BoxFuture<'async_trait, Result<Slot, ReadError>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
    {
        match self.for_read(key) {
            Ok(at) => self.sysvvm.read(at),
            Err(refusal) => Box::pin(ready(Err(refusal))),
        }
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
        self.sysvvm.documents().map(|_| self as _)
    }

    async fn close(&self) {
        self.sysvvm.close().await;
    }
}
