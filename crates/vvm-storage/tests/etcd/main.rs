//! The driver on a real etcd.
//!
//! - `suites`: the public suites, each case with names of its own.
//! - `handles`: what a handle refuses, and watches.
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

#[path = "../suites/driver.rs"]
mod driver;
mod encrypted;
mod failures;
mod handles;
#[path = "../suites/hints.rs"]
mod hint_suite;

use driver::{TTL, VACANT, entry, fresh, slot_of};
use vvm_storage::{OpenError, etcd::EtcdStorage};

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

async fn refused(url: &str) -> OpenError {
    EtcdStorage::open(url).await.expect_err("opened")
}

/// One prefix for all cases.
mod suites {
    use super::{
        driver::{Driver, all_suites_on_a_server},
        url,
    };

    all_suites_on_a_server!(Driver::on_a_server(url("vvm_test_suites")).await);
}
