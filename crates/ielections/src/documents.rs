//! Fenced documents: only the leader of one epoch can write them, in the partition of its slot.
//!
//! - [`Document`], [`DocumentId`], [`DocumentWrite`]: what is written.
//! - [`Documents`]: through which the work of a leadership reads and writes.
//! - [`DocumentStorage`]: the interface to a database, beside [`TtlStorage`](crate::TtlStorage), and its
//!   contract.
//!
//! **One number makes it safe.** A partition counts the batches that were ever written to it, and a batch
//! names the count that it follows ([`Fence`]). So each batch is applied at most once and in order, and a
//! late copy is refused (I2). The count also tells whether an unanswered batch was applied (I7).

mod access;
mod error;
mod handle;
mod partition;
mod renewal_turn;
mod writer;

pub use crate::storage::{
    document::{Document, DocumentId, DocumentVersion, NotAnId},
    document_limits::{BeyondDocumentLimits, DocumentLimits},
    document_storage::{BatchOutcome, DocumentStorage, Fence, FenceState, Page, Scan},
    document_write::{DocumentWrite, OnlyIf},
};
pub use error::{DocumentReadError, DocumentWriteError};
pub use handle::Documents;
pub(crate) use {access::DocumentAccess, partition::Partition, renewal_turn::RenewalTurn};
