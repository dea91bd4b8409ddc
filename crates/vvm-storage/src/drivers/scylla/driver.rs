//! The verbs of slots and settings: each is one statement, sent once.

mod description;
mod documents;

use super::{
    errors::DriverError,
    open::{Address, Ending, OpenError, Statements},
    rows::Record,
};
use crate::{
    Description, Opened, Partition, Provenance, SysVvmDocuments, SysVvmStorage, drivers::closed::Closed,
};
use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, OsEntropy, ReadError, Slot, Swap, WriteError,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A handle of a keyspace, with connections of its own.
#[derive(Debug)]
pub struct ScyllaStorage {
    /// `None` once closed. A running call keeps the connections until it ends.
    statements: Mutex<Option<Arc<Statements>>>,
    ending: Ending,
    address: Address,
    /// For the ids of batches.
    entropy: OsEntropy,
}

impl ScyllaStorage {
    /// Connects to the keyspace that `url` names, and checks its table. Creates nothing:
    /// [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let (statements, ending) = super::open::open(&address).await?;
        let statements = Mutex::new(Some(Arc::new(statements)));
        Ok(Self { statements, ending, address, entropy: OsEntropy::default() })
    }

    fn statements(&self) -> Result<Arc<Statements>, Closed> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }

    /// Replaces `from` by `entry`. `None` if it was applied, else the slot as it is.
    async fn swap(&self, at: &Partition, from: &Slot, entry: &Entry) -> Result<Option<Slot>, WriteError> {
        let (new, old) = (Record::of_entry(entry), Record::of_slot(from));
        let answer = self.statements()?.swap(at.as_bytes(), &new, &old).await;
        let outcome =
            answer.and_then(|columns| Ok(if columns.applied()? { None } else { Some(columns.slot()?) }));
        outcome.map_err(DriverError::into_write_error)
    }
}

#[async_trait]
impl SysVvmStorage for ScyllaStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: enough for a transaction's four round trips between data
            // centres, 50 ms each.
            min_ttl: Duration::from_secs(2),
            // CQL's limit is 65,535 bytes. This one is lower, because the server keeps keys in memory.
            max_key_bytes: 16 << 10,
            max_value_bytes: 16 << 10,
            // One read for each slot, all sent at once: a twentieth of what one connection takes.
            scan_batch: 100,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn opened(&self) -> Option<Opened> {
        Some(Opened::at(self.address.to_string(), Provenance::Existing))
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        Ok(self.swap(&at, from, entry).await?.map_or(Claim::Claimed, Claim::Refused))
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let from = Slot::Held { entry: held.clone(), proven_age: None };
        Ok(self.swap(&at, &from, entry).await?.map_or(Swap::Swapped, Swap::Mismatch))
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let answer = self.statements()?.release(at.as_bytes(), incarnation, epoch).await;
        let outcome = answer.and_then(|columns| {
            let applied = columns.applied()?;
            Ok(if applied { Delete::Deleted } else { Delete::Mismatch(columns.slot()?) })
        });
        outcome.map_err(DriverError::into_write_error)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        let answer = self.statements()?.read(at.as_bytes()).await;
        answer.and_then(|columns| Ok(columns.slot()?)).map_err(DriverError::into_read_error)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let statements = self.statements()?;
        let reads = at.iter().map(async |at| Ok(statements.peek(at.as_bytes()).await?.slot()?));
        try_join_all(reads).await.map_err(DriverError::into_read_error)
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let statements = self.statements()?;
        // Each slot is read from nodes of its own. A node that fails or hangs affects only its slots.
        let reads = at.iter().zip(seen).map(async |(at, seen)| {
            *seen = Some(statements.peek(at.as_bytes()).await?.slot()?);
            Ok(())
        });
        let outcomes = join_all(reads).await;
        outcomes.into_iter().collect::<Result<(), DriverError>>().map_err(DriverError::into_read_error)
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let answer = self.statements()?.settle(at.as_bytes(), value).await;
        let stands = answer.and_then(|columns| {
            Ok(if columns.applied()? { None } else { columns.setting()? }.unwrap_or_else(|| value.to_vec()))
        });
        stands.map_err(DriverError::into_write_error)
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let answer = self.statements()?.setting(at.as_bytes()).await;
        answer.and_then(|columns| Ok(columns.setting()?)).map_err(DriverError::into_read_error)
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        let statements = self.statements()?;
        description::describe(&statements.session, &self.address).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        drop(self.statements.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.ending.clone().wait().await;
    }
}
