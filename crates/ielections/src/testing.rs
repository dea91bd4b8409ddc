//! Public suites and test doubles, for this crate and for authors of storages.
//!
//! - [`contract`]: tests every sentence of the contract of [`TtlStorage`](crate::TtlStorage).
//! - [`document_contract`]: the same for [`DocumentStorage`](crate::DocumentStorage).
//! - [`elections_suite`]: tests elections on a storage.
//! - [`mock`]: a storage with faults: failures, delays, lost and reordered calls. Deterministic.
//! - [`Model`]: the simplest storage that keeps the contract.
//! - [`entry`], [`held`]: records to write; [`id`], [`put`], [`put_if`]: documents.
//! - [`in_mock_time`]: runs a test on a clock that advances when nothing can run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case is a test, and fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

pub mod contract;
pub mod document_contract;
pub mod elections_suite;
pub mod mock;
mod model;

pub use model::{Model, ModelStorage};

use crate::{DocumentId, DocumentWrite, Entry, Epoch, Holder, Incarnation, OnlyIf, Slot, Ttl, Version};
use bytes::Bytes;
use std::time::Duration;
use testing_time::MockClock;
use vvm_clock::Clock as _;

/// Returns a record under an incarnation of equal bytes.
///
/// # Panics
/// If `epoch` is none.
pub fn entry(incarnation: u8, write: u64, epoch: u64) -> Entry {
    Entry {
        holder: Holder::new("leader").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([incarnation; 16]), write },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(epoch).unwrap(),
    }
}

/// Returns a slot that `entry` holds.
pub fn held(entry: Entry) -> Slot {
    Slot::Held { entry, proven_age: None }
}

/// Returns the id of a document.
///
/// # Panics
/// If there are no bytes.
pub fn id(bytes: impl AsRef<[u8]>) -> DocumentId {
    DocumentId::new(bytes.as_ref().to_vec()).unwrap()
}

/// Returns a write without a condition.
///
/// # Panics
/// As [`id`].
pub fn put(name: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> DocumentWrite {
    put_if(name, body, OnlyIf::Always)
}

/// Returns a write.
///
/// # Panics
/// As [`id`].
pub fn put_if(name: impl AsRef<[u8]>, body: impl AsRef<[u8]>, only_if: OnlyIf) -> DocumentWrite {
    DocumentWrite::Put { id: id(name), body: Bytes::copy_from_slice(body.as_ref()), only_if }
}

/// Runs `test` on a runtime of one thread that advances the clock whenever no task can run.
///
/// # Panics
/// If it is not done after an hour of the clock.
pub fn in_mock_time(clock: &MockClock, test: impl Future<Output = ()>) {
    let idle = clock.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || _ = idle.advance_to_next())
        .build()
        .unwrap();
    let limit = clock.sleep(Duration::from_secs(3600));
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = test => {}
            () = limit => panic!("not done after an hour"),
        }
    });
}
