//! [`FaultyStorage`]: a storage behind a network with planned faults. Deterministic: no real time, no thread,
//! no task. It does not mock the protocol of a database: drivers are tested with real servers.

mod storage;

pub use storage::{FaultyStorage, Logged};

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// A verb of [`TtlStorage`](crate::TtlStorage), or of [`DocumentStorage`](crate::DocumentStorage) beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each is a function of the storage traits")]
pub enum Verb {
    InsertIfNotExist,
    TakeOver,
    CompareAndSwap,
    CompareAndDelete,
    Get,
    Scan,
    WriteDocuments,
    FenceState,
    Document,
    ScanDocuments,
}

impl Verb {
    /// Every verb of leader records, in the order of the trait.
    pub const RECORDS: [Self; 6] = [
        Self::InsertIfNotExist,
        Self::TakeOver,
        Self::CompareAndSwap,
        Self::CompareAndDelete,
        Self::Get,
        Self::Scan,
    ];

    /// Every verb of documents, in the order of the trait.
    pub const DOCUMENTS: [Self; 4] =
        [Self::WriteDocuments, Self::FenceState, Self::Document, Self::ScanDocuments];
}

/// The fault of a call. Instead of `Unknown` a read fails with `Unavailable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Fails with `NotApplied` and never reaches the storage.
    NotApplied,
    /// Fails with `Fatal` and never reaches the storage.
    Fatal,
    /// Fails with `Replaced` and never reaches the storage.
    Replaced,
    /// Fails with `Unknown` and never reaches the storage.
    LostRequest,
    /// Applied, then fails with `Unknown`.
    LostAnswer,
    /// Arrives after this delay, and is then applied and answered. A write that is dropped meanwhile is applied, too.
    SlowRequest(Duration),
    /// Applied at once; the answer arrives after this delay.
    SlowAnswer(Duration),
    /// Fails with `Unknown` at once, and is applied after this delay; after [`Duration::MAX`] by
    /// [`land_late`](FaultyStorage::land_late).
    Late(Duration),
    /// Neither answered nor applied before [`land_late`](FaultyStorage::land_late).
    Hang,
}

/// The cause in every error of the mock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("injected: {0:?}")]
pub struct Injected(pub Fault);

#[derive(Debug, Default)]
struct Plan {
    next: BTreeMap<Verb, VecDeque<Option<Fault>>>,
    always: BTreeMap<Verb, Fault>,
}

impl Plan {
    fn strike(&mut self, verb: Verb) -> Option<Fault> {
        if let Some(planned) = self.next.get_mut(&verb).and_then(VecDeque::pop_front) {
            return planned;
        }
        self.always.get(&verb).copied()
    }
}

/// What became of writes in flight.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Writes applied after their caller got `Unknown` or stopped waiting.
    pub landed_late: u64,
    /// Writes refused after their caller got `Unknown` or stopped waiting.
    pub refused_late: u64,
}
