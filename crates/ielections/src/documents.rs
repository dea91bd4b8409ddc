//! Fenced documents: what only the leader of one epoch can write, in its slot's partition.
//!
//! - [`Document`], [`DocumentId`], [`DocumentWrite`]: what is written.
//! - [`Documents`]: what a service under a leadership writes and reads with.
//! - [`DocumentStorage`]: the seam towards a database, beside [`TtlStorage`](crate::TtlStorage), and its
//!   contract.
//!
//! **One number makes it safe.** A partition counts the batches that were ever written to it, and a batch
//! names the count that it follows ([`Fence`]). So each batch lands at most once, in the order in which it
//! was meant, and a late copy of it never (I2); and whether an unanswered one has landed is read from the
//! count (I7).

mod document;
mod error;
mod handle;
mod limits;
mod partition;
mod storage;
mod write;
mod writer;

pub use document::{Document, DocumentId, DocumentVersion, NotAnId};
pub use error::{DocumentReadError, DocumentWriteError};
pub use handle::Documents;
pub use limits::{BeyondDocumentLimits, DocumentLimits};
pub(crate) use partition::{KeyPartition, NoPartition, Partition};
pub use storage::{BatchOutcome, DocumentStorage, Fence, FenceState, Page, Scan};
pub use write::{DocumentWrite, OnlyIf};
pub(crate) use writer::{DocumentWriter, RenewalTurn};
