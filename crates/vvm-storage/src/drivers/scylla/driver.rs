//! The verbs of slots and settings: each is one statement, sent once.

mod description;
mod documents;

use super::{
    errors::DriverError,
    open::{Address, Ending, OpenError, Statements},
    rows::Record,
};
use crate::{
    drivers::closed::Closed,
    key::Partition,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmStorage},
};
use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use ielections::{
    Document, DocumentId, DocumentLimits, Entry, Epoch, FenceState, Incarnation, Limits, OsEntropy, Page,
    ReadError, Scan, Slot, WriteError,
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

impl ScyllaStorage {
    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Done, WriteError> {
        Ok(self.swap(&at, from, entry).await?.into())
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Done, WriteError> {
        let from = Slot::Held { entry: held.clone(), proven_age: None };
        Ok(self.swap(&at, &from, entry).await?.into())
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Done, WriteError> {
        let answer = self.statements()?.release(at.as_bytes(), incarnation, epoch).await;
        let outcome = answer.and_then(|columns| {
            let applied = columns.applied()?;
            Ok(if applied { Done::Applied } else { Done::Refused(columns.slot()?.into()) })
        });
        outcome.map_err(DriverError::into_write_error)
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Done, WriteError> {
        let answer = self.statements()?.settle(at.as_bytes(), value).await;
        let outcome = answer.and_then(|columns| {
            let stands = if columns.applied()? { None } else { columns.setting()? };
            Ok(stands.map_or(Done::Applied, |stands| Done::Refused(Shown::Setting(stands))))
        });
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

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        match &step {
            Step::Claim { from, to } => self.claim(at, from, to).await,
            Step::Renew { from, to } => self.renew(at, from, to).await,
            Step::Release { incarnation, epoch } => self.release(at, *incarnation, *epoch).await,
            Step::Batch { fence, writes } => self.write_documents(&at, fence, writes).await,
            Step::Settle { value } => self.settle(at, value).await,
        }
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

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let answer = self.statements()?.setting(at.as_bytes()).await;
        answer.and_then(|columns| Ok(columns.setting()?)).map_err(DriverError::into_read_error)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(self.document_limits())
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.fence_state(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.document(at, id).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.scan_documents(at, scan).await
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
