//! The verbs: each one statement, or one conditional batch of CQL on one partition, sent once.

use super::{
    address::Address,
    connect::Ending,
    description,
    errors::DriverError,
    open,
    statements::{MAX_PAGE, Statements},
};
use crate::{
    drivers::closed::Closed,
    key::Partition,
    open_error::OpenError,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmStorage},
};
use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use ielections::{
    Document, DocumentId, DocumentLimits, Entropy as _, FenceState, Limits, OsEntropy, Page, ReadError, Scan,
    Slot, WriteError,
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
        let (statements, ending) = open::open(&address).await?;
        let statements = Mutex::new(Some(Arc::new(statements)));
        Ok(Self { statements, ending, address, entropy: OsEntropy::default() })
    }

    fn statements(&self) -> Result<Arc<Statements>, Closed> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }

    async fn carry_out(
        &self,
        statements: &Statements,
        at: &Partition,
        step: &Step,
    ) -> Result<Done, DriverError> {
        let mut id = [0; 16];
        if matches!(step, Step::Batch { .. }) {
            self.entropy.fill(&mut id);
        }
        let columns = statements.step(at.as_bytes(), step, &id).await?;
        if columns.applied()? {
            return Ok(Done::Applied);
        }
        Ok(match step {
            Step::Claim { .. } | Step::Renew { .. } | Step::Release { .. } => {
                Done::Refused(columns.slot()?.into())
            }
            // The server may lose ours to a transaction that then finishes it, find our batch when it tries
            // again, and refuse it.
            Step::Batch { .. } if columns.last_batch_is(&id)? => Done::Applied,
            Step::Batch { .. } => Done::Refused(Shown::Nothing),
            Step::Settle { .. } => {
                columns.setting()?.map_or(Done::Applied, |stands| Done::Refused(Shown::Setting(stands)))
            }
        })
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
        let statements = self.statements()?;
        self.carry_out(&statements, &at, &step).await.map_err(DriverError::into_write_error)
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
        Some(DocumentLimits {
            // CQL's limit is 65,535; the server keeps them in an index.
            max_id_bytes: 1 << 10,
            // Cassandra and ScyllaDB allow half a segment of the commit log, 16 MiB or more. But a
            // transaction sends its batch to each replica twice, and renewals wait for it. 1 MiB takes less
            // than 0.1 s.
            max_batch_bytes: 1 << 20,
            max_body_bytes: 64 << 10,
            max_batch: 256,
            max_page: MAX_PAGE.into(),
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let answer = self.statements()?.read(at.as_bytes()).await;
        let state =
            answer.and_then(|columns| Ok(FenceState { slot: columns.slot()?, last: columns.last_batch()? }));
        state.map_err(DriverError::into_read_error)
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.statements()?.document(at.as_bytes(), id).await.map_err(DriverError::into_read_error)
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.statements()?.scan_documents(at.as_bytes(), scan).await.map_err(DriverError::into_read_error)
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
