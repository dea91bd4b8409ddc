//! Elections, leaderships, and the storage contract they need. No database, no wall clock, no runtime of its own.
//!
//! The words (`docs/architecture.md` has them all): candidates campaign for a *slot* of a storage that everybody shares;
//! who holds the record of a slot leads it, under an *epoch* that is larger than every earlier one; a *deadman* ends
//! the process before anybody else can take the record over.
//!
//! - [`record`]: the words of the protocol as types.
//! - [`storage`]: [`TtlStorage`], the one seam towards a database, and its contract.
//! - [`documents`]: what only the leader of one epoch can write.
//! - [`timing`]: every interval of the protocol, derived from the TTL in one place.
//! - [`env`](mod@env): clock, deadman, randomness and spawning, all of which come in from outside.
//! - `testing` (feature): the public suites and the storage mock.
#![forbid(unsafe_code)]

pub mod documents;
pub mod elections;
mod engine;
pub mod env;
mod leadership;
mod loss;
pub mod protocol;
pub mod record;
mod standing;
pub mod storage;
#[cfg(feature = "tokio-rt")]
mod system;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timing;

pub use documents::{
    BeyondDocumentLimits, Document, DocumentId, DocumentLimits, DocumentReadError, DocumentStorage,
    DocumentVersion, DocumentWrite, DocumentWriteError, Documents, Fence, FenceState, Fenced, OnlyIf, Page,
    Scan,
};
pub use elections::{AcquireError, Candidacy, Elections, EngineSettings};
pub use env::{Entropy, Env, Spawn};
pub use leadership::{Leadership, Ran};
pub use loss::Loss;
pub use protocol::{Handback, Patience, Terms};
pub use record::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
pub use standing::{NotEnsured, Standing};
pub use storage::{Claim, Delete, Key, Layer, Limits, ReadError, Swap, TtlStorage, WriteError};
#[cfg(feature = "tokio-rt")]
pub use system::{EnvError, OsEntropy, TokioSpawn};
pub use timing::Timing;
