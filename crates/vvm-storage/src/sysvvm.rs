use crate::{
    key::Partition,
    step::{Step, StepOutcome},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use std::{
    fmt::{self, Debug},
    time::Duration,
};

/// The sysvvm keyspace of one database.
///
/// One partition has the epoch, the leader record and the documents of one election key, so that a claim and
/// its fence are one atomic step. Settings have partitions of their own.
///
/// The contract is that of [`ielections::TtlStorage`] and [`ielections::DocumentStorage`], with partitions for
/// keys. The suites run through [`ElectionsTtlStorage`](crate::ElectionsTtlStorage), and so test a whole
/// driver. It checks the limits before it calls a driver.
///
/// # Example
/// ```
/// use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Version};
/// use std::sync::Arc;
/// use vvm_clock::SystemClock;
/// use vvm_storage::{ClusterName, ElectionKey, SlotNumber, Step, StepOutcome, SysVvmStorage as _, mem::MemDatabase};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let storage = MemDatabase::new(Arc::new(SystemClock::start()?)).open();
/// let at = ElectionKey { cluster: ClusterName::from("payroll"), slot: SlotNumber::FIRST }.partition();
///
/// // A candidate reads the slot, and claims it in the state that it saw.
/// let seen = storage.read(at.clone()).await?;
/// let record = Entry {
///     holder: Holder::new("host-1")?,
///     version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 },
///     ttl: Ttl::DEFAULT,
///     epoch: Epoch::following(seen.last_epoch(), std::time::Duration::ZERO)?,
/// };
/// assert_eq!(storage.commit(at.clone(), Step::claim(&seen, &record)).await?, StepOutcome::Applied);
///
/// // The leader renews it, and gives it back.
/// let renewed = record.renewed(record.version.next());
/// assert_eq!(storage.commit(at.clone(), Step::renew(&record, &renewed)).await?, StepOutcome::Applied);
/// let release = Step::release(renewed.incarnation(), renewed.epoch);
/// assert_eq!(storage.commit(at.clone(), release).await?, StepOutcome::Applied);
///
/// // The epoch survives. A step whose condition does not hold changes nothing, and shows the slot.
/// let vacant = storage.read(at.clone()).await?;
/// assert_eq!(vacant.last_epoch(), Some(record.epoch));
/// let late = storage.commit(at, Step::renew(&renewed, &renewed)).await?;
/// assert_eq!(late, StepOutcome::Refused(vacant.into()));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait SysVvmStorage: Debug + Send + Sync + 'static {
    /// Returns the limits of this driver. Larger keys and values are refused before the driver is called.
    fn limits(&self) -> Limits;

    /// Carries a step out, if its condition holds, as one atomic, linearizable write that is durable before it
    /// is answered. [`decide`](crate::decide) says what each step means.
    ///
    /// A refusal shows what [`decide`](crate::decide) shows. The driver sends a step once, and never again by
    /// itself if it may have been applied (I7).
    ///
    /// # Cancel safety
    /// Dropped, the step may be applied, even later.
    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError>;

    /// Reads a slot; linearizable.
    async fn read(&self, at: Partition) -> Result<Slot, ReadError>;

    /// Reads slots, in the order of `at`; may be stale.
    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError>;

    /// [`peek`](Self::peek) into `seen`. For a driver that reads one by one: a slot that can't be read stays `None`,
    /// and the others are read. Fails if one was not read. Dropped, it leaves in `seen` what was read.
    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let slots = self.peek(at).await?;
        seen.iter_mut().zip(slots).for_each(|(seen, slot)| *seen = Some(slot));
        Ok(())
    }

    /// Reads the value that [`Step::Settle`] stored, if there is one; linearizable.
    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError>;

    /// Returns the limits of documents. `None` if the driver has none: it gets no batch and is asked for no document.
    fn document_limits(&self) -> Option<DocumentLimits> {
        None
    }

    /// Reads the state that a fence is compared with; linearizable.
    async fn fence_state(&self, _at: &Partition) -> Result<FenceState, ReadError> {
        Err(ReadError::Fatal(NoDocuments.into()))
    }

    /// Reads a document; linearizable.
    async fn document(&self, _at: &Partition, _id: &DocumentId) -> Result<Option<Document>, ReadError> {
        Err(ReadError::Fatal(NoDocuments.into()))
    }

    /// Reads a page of documents. `scan.limit` is between 1 and [`DocumentLimits::max_page`].
    async fn scan_documents(&self, _at: &Partition, _scan: &Scan) -> Result<Page, ReadError> {
        Err(ReadError::Fatal(NoDocuments.into()))
    }

    /// Returns the hints of this driver, if it has them.
    fn hints(&self) -> Option<&dyn SysVvmHints> {
        None
    }

    /// Returns where the storage is and whether opening it created it, if the driver knows.
    fn opened(&self) -> Option<OpenedStorage> {
        None
    }

    /// Describes the database, its version and its configuration, for `vvm doctor`. Called rarely; may send a
    /// few requests. What the user may not read is left out, or is a concern.
    async fn describe(&self) -> Result<Description, ReadError> {
        Ok(Description::default())
    }

    /// Returns how long ago each record was written by the database's own clock, for people: that clock may jump, so no
    /// candidate may rely on it. `None` for a record that no leader wrote, and if the database keeps no times.
    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        Ok(vec![None; at.len()])
    }

    /// Lists settings: the partitions with a value of [`setting`](Self::setting), for people. May be stale. At most
    /// [`MOST_LISTED`], the first in the order of bytes if the storage has one. `None` if the driver can't list them.
    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        Ok(None)
    }

    /// Ends the driver's threads and sockets (I9). Every call after it fails with `Fatal`.
    async fn close(&self);
}

/// A setting, and its value if the storage lists values beside keys.
pub type ListedSetting = (Partition, Option<Vec<u8>>);

/// How many settings one call of [`SysVvmStorage::settings`] lists.
pub const MOST_LISTED: usize = 1000;

#[derive(Debug, thiserror::Error)]
#[error("this storage has no documents")]
pub(crate) struct NoDocuments;

pub(crate) fn unsent(error: ReadError) -> WriteError {
    match error {
        ReadError::Unavailable(cause) => WriteError::NotApplied(cause),
        ReadError::Fatal(cause) => WriteError::Fatal(cause),
        ReadError::Replaced(cause) => WriteError::Replaced(cause),
    }
}

/// Hints that there may be something to look at: a release, or an operator's request.
///
/// **Nothing depends on a hint, and nothing in one is trusted.** It causes a look, which alone counts. A hint
/// may be lost, late, repeated or false; candidates read all the same, if less often. So a hint can't open a
/// slot (I5), and can't stop or prolong work (I1).
#[async_trait]
pub trait SysVvmHints: Send + Sync {
    /// Hints to all processes that wait for hints about `topic`. Waits for no answer (I10), and reports no failure.
    async fn announce(&self, topic: &Partition);

    /// Waits for a hint about `topic`. Hints that arrive between two calls are kept as one. The end of a
    /// connection by which hints come is a hint as well. Never returns if hints can't come.
    ///
    /// One call at a time waits; of several, all but one may wait for longer.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    async fn hinted(&self, topic: &Partition);

    /// Whether hints about `topic` arrive, as far as this side knows: [`hinted`](Self::hinted) has begun to
    /// listen, and its connection has not ended. Candidates read less often meanwhile.
    fn listens(&self, topic: &Partition) -> bool;
}

/// Where an open storage is. Two candidates that print different locations do not share a storage.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenedStorage {
    /// The absolute path of a file or folder, or the address of a server. Contains no secret.
    pub location: String,
    /// The file system of a file, if the driver knows it.
    pub file_system: Option<String>,
    /// Whether this call to open created the storage.
    pub provenance: Provenance,
}

/// Whether a storage was there before it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provenance {
    /// Opening created it: it had no records.
    Created,
    /// It was there.
    Existing,
}

impl OpenedStorage {
    /// A storage at `location`.
    pub fn at(location: impl Into<String>, provenance: Provenance) -> Self {
        Self { location: location.into(), file_system: None, provenance }
    }

    /// On this file system.
    #[must_use]
    pub fn on(mut self, file_system: impl Into<String>) -> Self {
        self.file_system = Some(file_system.into());
        self
    }
}

impl fmt::Display for OpenedStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.location)?;
        if let Some(file_system) = &self.file_system {
            write!(out, " on {file_system}")?;
        }
        write!(out, ", {}", self.provenance)
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Created => "created",
            Self::Existing => "existing",
        })
    }
}

/// The software, the configuration and the concerns of a storage.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The database and its version, such as `SQLite 3.50.2`. `None` if there is none to report.
    pub software: Option<String>,
    /// Settings that matter to elections: a name in lower case and its value, in the driver's order.
    pub settings: Vec<(&'static str, String)>,
    /// Unsafe settings, and what could not be read: a sentence each, with what to do.
    pub concerns: Vec<String>,
}

impl Description {
    /// A description of this database.
    pub fn new(software: impl Into<String>) -> Self {
        Self { software: Some(software.into()), ..Self::default() }
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }

    /// Adds a concern.
    #[must_use]
    pub fn concerned(mut self, concern: impl Into<String>) -> Self {
        self.concerns.push(concern.into());
        self
    }

    /// Returns the value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(named, _)| *named == name).map(|(_, value)| value.as_str())
    }
}
