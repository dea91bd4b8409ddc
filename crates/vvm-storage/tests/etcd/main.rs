//! The driver on a real etcd.
//!
//! - `suites`: the public suites, each case with names of its own.
//! - `handles`: what a handle refuses.
//! - `hints`: watches.
//! - `encrypted`: TLS and logins, on clusters that the tests start.
//! - `failures`: members that fail, and storages that are replaced, likewise.
//!
//! `cargo xtask test-drivers --only etcd` starts a cluster and runs this with `VVM_TEST_ETCD=host:port,…`.
//! A cluster of your own will do for `suites` and `handles`. It creates keys below `vvm_test_…/` and leaves
//! them there.
#![cfg(feature = "etcd")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod encrypted;
mod failures;
mod handles;
mod hints;
mod suites;

use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::time::Duration;
use vvm_storage::{OpenError, Partition, etcd::EtcdStorage};

/// Returns where the cluster is. Fails without the variable, so that no test is skipped.
fn cluster() -> String {
    std::env::var("VVM_TEST_ETCD").expect(
        "VVM_TEST_ETCD=host:port,… says where a cluster is; `cargo xtask test-drivers --only etcd` starts \
         one",
    )
}

/// A prefix on the cluster. Requests may take as long as in `dynamodb.rs`: the suites use TTLs of all
/// lengths.
fn url(prefix: &str) -> String {
    format!("etcd://{}/{prefix}?request_timeout=20s", cluster())
}

/// A name that no run before had.
fn fresh() -> String {
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    format!("vvm_test_{}", bytes.map(|byte| format!("{byte:02x}")).concat())
}

async fn refused(url: &str) -> OpenError {
    EtcdStorage::open(url).await.expect_err("opened")
}

fn entry(epoch: u64, write: u64, ttl: Duration) -> Entry {
    Entry {
        holder: Holder::new("host").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write },
        ttl: Ttl::new(ttl).unwrap(),
        epoch: Epoch::new(epoch).unwrap(),
    }
}

const TTL: Duration = Duration::from_secs(2);

/// A slot whose key begins as those of leader records do.
fn slot_of(name: &str) -> Partition {
    Partition::from_bytes([&[1], name.as_bytes()].concat())
}

const VACANT: Slot = Slot::Vacant(Vacant { last_epoch: None });
