//! Leader election on any storage that has a conditional write.
//!
//! [`Elections`] campaigns for a *slot* of a shared storage. [`Leadership`] is a slot that is held: it is renewed until
//! it is handed back or lost. [`Standing`] is its state, for the work under it: the fencing token, and how much time is
//! left. If the network, the runtime or the process hangs, the process is killed before another one can lead.
//!
//! ```
//! use ielections::{Candidacy, Elections, Env, Holder, Terms, Ttl};
//! use std::{num::NonZeroU32, sync::Arc};
//! use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let env = Env::this_process()?;
//!     // "mem:" is for one process. For several: "sqlite:/var/lib/payroll/leader.db", or the URL of a cluster.
//!     let storage = ElectionsTtlStorage::new(vvm_storage::open("mem:", env.clock.clone()).await?);
//!     let elections = Elections::new(Arc::new(storage), env);
//!     let slot = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::MIN) };
//!     let terms = Terms::new(Holder::new("10.0.0.7")?, Ttl::DEFAULT);
//!     let (_, leadership) = elections.acquire(Candidacy { slots: vec![slot], terms }).await?;
//!     let ended = leadership.run(|stop, standing| async move {
//!         println!("leading with epoch {}", standing.epoch());
//!         // Work until `stop.cancelled()`. Here the work is done at once.
//!         stop.is_cancelled()
//!     });
//!     println!("{}", ended.await.release);
//!     elections.cleanup().await;
//!     Ok(())
//! }
//! ```
//!
//! The feature `testing` makes two modules public: `testing` has the public suites and the storage mock, and `protocol`
//! the protocol as values. The crate contains no driver of a database, and without the feature `tokio-rt` no runtime.
//! `docs/contributing/architecture.md` defines the terms.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod bounded;
mod candidacy;
pub mod documents;
mod engine;
pub mod env;
pub mod leadership;
#[cfg(feature = "testing")]
pub mod protocol;
#[cfg(not(feature = "testing"))]
// Only cargo-mutants reads this line, which no build sets. Otherwise it would list the module twice.
#[cfg_attr(proc_macro, mutants::skip)]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "simulation and tests drive more of it than the engine does"
)]
mod protocol;
pub mod record;
mod state;
pub mod storage;
pub mod successor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timing;

/// [`Elections`]: acquires leaderships, and ends when all of them are handed back.
pub mod elections {
    pub use crate::{
        candidacy::{AcquireError, AcquireTimeout, Candidacy, Terms},
        engine::Elections,
    };
}

#[doc(inline)]
pub use {engine::Elections, leadership::Leadership, leadership::Standing};

// Short paths. Each item is documented in its module.
#[doc(hidden)]
pub use candidacy::{AcquireError, AcquireTimeout, Candidacy, Terms};
#[doc(hidden)]
pub use documents::{
    BatchOutcome, BeyondDocumentLimits, Document, DocumentId, DocumentLimits, DocumentReadError,
    DocumentStorage, DocumentVersion, DocumentWrite, DocumentWriteError, Documents, Fence, FenceState,
    OnlyIf, Page, Scan,
};
#[doc(hidden)]
pub use env::{Entropy, Env, Spawn};
#[cfg(feature = "tokio-rt")]
#[doc(hidden)]
pub use env::{EnvError, OsEntropy, TokioSpawn};
#[doc(hidden)]
pub use leadership::{Completed, InsufficientTime, Loss, ReleaseOutcome};
#[doc(hidden)]
pub use record::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
#[doc(hidden)]
pub use storage::{Claim, Delete, Key, Limits, ReadError, Swap, TtlStorage, WriteError};
#[doc(hidden)]
pub use timing::Timing;

pub use tokio_util::sync::CancellationToken;
pub use vvm_clock as clock;
pub use vvm_deadman::{ArmError, Deadman};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
