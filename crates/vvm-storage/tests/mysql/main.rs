//! The driver on a real MariaDB.
//!
//! - `suites`: the public suites, each case with names of its own.
//! - `handles`: refusals, errors and connections of a handle.
//! - `failover`: replicas that are promoted, on servers that the tests start.
//!
//! `cargo xtask test-drivers --only mysql` starts a server and runs this with `VVM_TEST_MYSQL=mysql://…`; a server of your own
//! will do for `suites`.
#![cfg(feature = "mysql")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

#[path = "../suites/driver.rs"]
mod driver;
mod failover;
#[path = "../suites/failover.rs"]
mod failover_suite;
mod handles;

use driver::{TTL, VACANT, entry, fresh, slot_of};
use servers::mysql::MariaDb;
use std::path::Path;
use vvm_storage::{OpenError, mysql::MySqlStorage};

/// How long a request may take: the suites use TTLs of all lengths.
const OPTIONS: &str = "request_timeout=20s&max_ttl=86400s";

/// Returns where the server is. Fails without the variable, so that no test is skipped.
fn server() -> String {
    std::env::var("VVM_TEST_MYSQL").expect(
        "VVM_TEST_MYSQL=mysql://user@host/database says where a server is; `cargo xtask test-drivers --only mysql` \
         starts one",
    )
}

fn started(settings: &[&str]) -> MariaDb {
    MariaDb::start(Path::new("../../target"), &["elections"], settings).unwrap()
}

async fn refused(url: &str) -> OpenError {
    MySqlStorage::open(url).await.expect_err("opened")
}

/// One database for all cases.
mod suites {
    use super::{
        OPTIONS,
        driver::{Driver, all_suites_on_a_server},
        server,
    };

    all_suites_on_a_server!(Driver::on_a_server(format!("{}?{OPTIONS}", server())).await);
}
