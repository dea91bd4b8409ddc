//! On etcd.
//!
//! - `handles`: what a handle refuses, and watches.
//! - `encrypted`: TLS and logins, on clusters that the tests start.
//! - `failures`: members that fail, and storages that are replaced, likewise.

mod encrypted;
mod failures;
mod handles;

use crate::driver::{Driver, all_suites_on_a_server};

all_suites_on_a_server!(Driver::on_a_server(url("vvm_test_suites")).await);

/// A prefix on the cluster. Requests may take as long as in `dynamodb.rs`: the suites use TTLs of all
/// lengths.
fn url(prefix: &str) -> String {
    let cluster = crate::server("VVM_TEST_ETCD", "host:port,…", "etcd");
    format!("etcd://{cluster}/{prefix}?request_timeout=20s")
}
