//! One node of three is left. Its clients get an error that names the missing quorum and allows another
//! attempt.
//!
//! `cargo xtask test-drivers --nodes 3` kills the others and runs this with `VVM_TEST_SCYLLA=host:port`, the
//! remaining node. It runs after `scylla`, and uses its keyspace.
#![cfg(feature = "scylla")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ielections::{ReadError, WriteError};
use std::time::Duration;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{Partition, Step, SysVvmStorage, scylla::ScyllaStorage};

/// How long a node may take to notice that the others are dead: about 10 s on an idle machine.
const DETECTION: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn missing_quorum_is_reported_with_its_numbers() {
    let address = std::env::var("VVM_TEST_SCYLLA").expect("run `cargo xtask test-drivers --nodes 3`");
    let url = format!("scylla://{address}/vvm_test_suites_3");
    // Opening needs no quorum, because each node has the schema.
    let storage = ScyllaStorage::open(&url).await.unwrap();
    let at = Partition::from_bytes(*b"minority");
    let says = "no quorum: 2 copies must answer, and the nodes of 1 are up";
    let clock = SystemClock::start().unwrap();
    let give_up_at = clock.now().after(DETECTION);
    loop {
        let (write, read) =
            (storage.commit(at.clone(), Step::settle(b"value")).await, storage.setting(at.clone()).await);
        // Before and after the node has noticed: a write may have been applied, a read may be repeated.
        let (Err(WriteError::Unknown(write)), Err(ReadError::Unavailable(read))) = (&write, &read) else {
            panic!("{write:?}, {read:?}");
        };
        println!("{write}; {read}");
        if write.to_string().contains(says) && read.to_string().contains(says) {
            break;
        }
        assert!(clock.now() < give_up_at, "{write}; {read}");
        clock.sleep(Duration::from_millis(500)).await;
    }
    storage.close().await;
}
