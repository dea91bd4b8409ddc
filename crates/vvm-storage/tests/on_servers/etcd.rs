mod encrypted;
mod failures;
mod handles;

use crate::driver::{Driver, all_suites_on_a_server};

all_suites_on_a_server!(Driver::on_a_server(url("vvm_test_suites")).await);

/// Requests may take as long as in `dynamodb.rs`.
fn url(prefix: &str) -> String {
    let cluster = crate::server("VVM_TEST_ETCD", "host:port,…", "etcd");
    format!("etcd://{cluster}/{prefix}?request_timeout=20s")
}
