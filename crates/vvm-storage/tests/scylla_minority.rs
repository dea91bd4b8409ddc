//! One node of a cluster is left: its clients get an error that says so, and that it is no refusal for
//! good.
//!
//! `cargo xtask test-drivers --nodes 3` kills the others and runs this with `VVM_TEST_SCYLLA=host:port`, the
//! node that is left. It comes after `scylla`, and uses its keyspace.
#![cfg(feature = "scylla")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ielections::{ReadError, WriteError};
use std::time::Duration;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{Partition, SysVvmStorage, scylla::ScyllaStorage};

/// Until a node holds the others for dead: some 10 s on quiet cores.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_quorum_is_said_with_its_numbers() {
    let address = std::env::var("VVM_TEST_SCYLLA").expect("`cargo xtask test-drivers --nodes 3` says where");
    let url = format!("scylla://{address}/vvm_test_suites_3");
    // What needs no quorum works: the schema is the node's own.
    let storage = ScyllaStorage::open(&url).await.unwrap();
    let at = Partition::from_bytes(*b"minority");
    let says = "no quorum: 2 copies have to answer, and the nodes of 1 are up";
    let clock = SystemClock::start().unwrap();
    let give_up_at = clock.now().after(PATIENCE);
    loop {
        let (write, read) = (storage.settle(at.clone(), b"value").await, storage.setting(at.clone()).await);
        // Before and after the node knows: a write may have been applied, a read is to be tried again.
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
