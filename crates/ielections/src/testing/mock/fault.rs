//! What can go wrong with one call.

use std::time::Duration;

/// A verb of [`TtlStorage`](crate::TtlStorage), or of [`DocumentStorage`](crate::DocumentStorage) beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// `insert_if_not_exist`.
    InsertIfNotExist,
    /// `take_over`.
    TakeOver,
    /// `compare_and_swap`.
    CompareAndSwap,
    /// `compare_and_delete`.
    CompareAndDelete,
    /// `get`.
    Get,
    /// `scan`.
    Scan,
    /// `write_documents`.
    WriteDocuments,
    /// `fence_state`.
    FenceState,
    /// `document`.
    Document,
    /// `scan_documents`.
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

    /// Whether it changes nothing.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Scan | Self::FenceState | Self::Document | Self::ScanDocuments)
    }
}

/// What goes wrong with a call. Where a fault says `Unknown`, a read says `Unavailable`: reads have no
/// `Unknown`.
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
    /// Under way for so long, then applied and answered. Dropped meanwhile, a write is applied all the same.
    SlowRequest(Duration),
    /// Applied at once; the answer is under way for so long.
    SlowAnswer(Duration),
    /// Fails with `Unknown` at once, and is applied so much later, whatever was written in between.
    Late(Duration),
    /// Fails with `Unknown` at once, and is applied by [`land_late`](super::FaultyStorage::land_late).
    HeldBack,
    /// Not answered, and not applied, before [`land_late`](super::FaultyStorage::land_late).
    Hang,
}

/// The cause in every error that the mock makes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("injected: {0:?}")]
pub struct Injected(pub Fault);
