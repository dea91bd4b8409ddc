//! Public suites and test doubles, for this crate and for authors of storages.
//!
//! - [`contract`]: tests every sentence of the contract of [`TtlStorage`](crate::TtlStorage).
//! - [`document_contract`]: the same for [`DocumentStorage`](crate::DocumentStorage).
//! - [`elections_suite`]: tests elections on a storage.
//! - [`all_suites!`](crate::all_suites): all of them, the documents of elections included, in one line.
//! - [`MockTtlStorage`]: a storage whose answers a test writes, verb by verb.
//! - [`mock`]: a storage with faults: failures, delays, lost and reordered calls. Deterministic.
//! - [`Model`]: the simplest storage that keeps the contract.
//! - [`entry`], [`held`]: records to write; [`id`], [`put`], [`put_if`]: documents.
//! - [`in_mock_time`]: runs a test on a clock that advances when nothing can run; [`env()`] is an environment for it.
//!
//! A leader that can renew no more, in no real time. What needs a storage that remembers what was written
//! takes [`Model`], and [`mock`] before it for faults.
//!
//! ```
//! use ielections::{Candidacy, Elections, Holder, Loss, Terms, Ttl, WriteError};
//! use ielections::testing::{MockClock, MockTtlStorage, env, in_mock_time};
//! use std::sync::Arc;
//!
//! let mut storage = MockTtlStorage::vacant();
//! storage.expect_compare_and_swap().returning(|_, _, _| Err(WriteError::NotApplied("the disk is full".into())));
//! let clock = MockClock::new();
//! in_mock_time(&clock, async {
//!     let elections = Elections::new(Arc::new(storage), env(&clock));
//!     let terms = Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT);
//!     let (_, leadership) = elections.acquire(Candidacy { slots: vec![1], terms }).await.unwrap();
//!     assert!(matches!(leadership.lost().await, Loss::StorageUnreachable { .. }));
//!     leadership.release().await;
//!     elections.cleanup().await;
//! });
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case is a test, and fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

pub mod contract;
pub mod document_contract;
pub mod elections_suite;
mod lateness;
pub mod mock;
mod mock_ttl_storage;
mod model;

pub use lateness::ATTEMPTS;
pub use mock_ttl_storage::MockTtlStorage;
pub use model::{Model, ModelStorage};
pub use testing_time::{MockClock, MockWallClock};

use crate::{
    DocumentId, DocumentWrite, Entry, Env, Epoch, Holder, Incarnation, OnlyIf, OsEntropy, Slot, TokioSpawn,
    Ttl, Version, env::panic_message,
};
use bytes::Bytes;
use futures_util::FutureExt as _;
use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Handle;
use vvm_clock::Clock as _;
use vvm_deadman::{Deadman, recording::RecordingTrigger};

/// Makes the tests of all four suites for a storage: `all_suites!(MyStorage::fresh())`, in the modules `contract`,
/// `documents` and `elections`. A second expression, if there is one, is for elections.
///
/// Time is real, unless the storage has a mock clock. Probes measure how late the machine is meanwhile. A case that
/// fails, and whose failure this can explain, is *inconclusive*: it says so, and another attempt follows on another
/// storage, [`ATTEMPTS`] in all. Nothing explains two leaders at once, an early take-over, epochs that do not rise, or a
/// late write that is applied; in the suites of the contract, nothing explains a wrong answer.
#[macro_export]
macro_rules! all_suites {
    ($factory:expr) => {
        $crate::all_suites!($factory, $factory);
    };
    ($factory:expr, $in_elections:expr) => {
        mod contract {
            use super::*;
            $crate::storage_contract_suite!($factory);
        }

        mod documents {
            use super::*;
            $crate::document_contract_suite!($factory);
        }

        mod elections {
            use super::*;
            $crate::elections_test_suite!($in_elections);
            $crate::fenced_elections_suite!($in_elections);
        }
    };
}

/// Returns a record under an incarnation of equal bytes. Panics if `epoch` is none.
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

/// Returns the id of a document. Panics if there are no bytes.
pub fn id(bytes: impl AsRef<[u8]>) -> DocumentId {
    DocumentId::new(bytes.as_ref().to_vec()).unwrap()
}

/// Returns a write without a condition. Panics as [`id`].
pub fn put(name: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> DocumentWrite {
    put_if(name, body, OnlyIf::Always)
}

/// Returns a write. Panics as [`id`].
pub fn put_if(name: impl AsRef<[u8]>, body: impl AsRef<[u8]>, only_if: OnlyIf) -> DocumentWrite {
    DocumentWrite::Put { id: id(name), body: Bytes::copy_from_slice(body.as_ref()), only_if }
}

/// Returns an environment on `clock`, with the current tokio runtime. No deadline of it ends the process: a test that
/// asks for the kill replaces `deadman` by one with a [`RecordingTrigger`] of its own. Panics outside of a tokio runtime.
pub fn env(clock: &MockClock) -> Env {
    Env {
        clock: Arc::new(clock.clone()),
        wall: Arc::new(MockWallClock::new()),
        deadman: Deadman::with_trigger(RecordingTrigger::on(Arc::new(clock.clone()))),
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::new(TokioSpawn::on(Handle::current())),
    }
}

/// Runs `test` on a runtime of one thread that advances the clock whenever no task can run, also while a thread or a
/// server is waited for: a real storage, such as SQLite, is late for each time limit. Take [`Model`] or `mem:`. Panics
/// after an hour on the clock; and at the end, if a mock was called otherwise than expected, which the engine survives.
pub fn in_mock_time(clock: &MockClock, test: impl Future<Output = ()>) {
    MOCK_PANIC.take();
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
            () = limit => panic!(
                "not done after an hour on the mock clock, which runs on while a thread or a server is waited for: \
                 no test for a real storage, such as SQLite"
            ),
        }
    });
    // Tasks that have not ended own mocks, too.
    drop(runtime);
    if let Some(message) = MOCK_PANIC.take() {
        panic!("in a storage mock: {message}");
    }
}

thread_local! {
    /// The first panic of a mock on this thread, which [`in_mock_time`] has to itself.
    static MOCK_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Drives a call of a mock. If it panics, so does [`in_mock_time`] at its end.
pub async fn mocked<T>(call: impl Future<Output = T>) -> T {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|payload| panic_again(payload))
}

/// Checks the expectations of a mock that is dropped. If that panics, so does [`in_mock_time`] at its end.
pub fn verified(checkpoint: impl FnOnce()) {
    if !std::thread::panicking() {
        catch_unwind(AssertUnwindSafe(checkpoint)).unwrap_or_else(|payload| panic_again(payload));
    }
}

fn panic_again(payload: Box<dyn Any + Send>) -> ! {
    MOCK_PANIC.with_borrow_mut(|first| _ = first.get_or_insert_with(|| panic_message(&*payload).to_owned()));
    resume_unwind(payload)
}
