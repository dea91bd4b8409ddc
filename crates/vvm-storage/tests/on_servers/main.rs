//! Drivers on real servers: a module for each. `suites` of each has the public suites, each case with names of its own.
//! `cargo xtask test-drivers --only postgres` starts servers and runs `postgres`, with
//! `VVM_TEST_POSTGRES=postgres://…`; a server of your own will do for what starts none. What the cases create is named
//! `vvm_test_…`, and left there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

#[path = "../storage/driver.rs"]
mod driver;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod failover_suite;
mod hint_suite;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "object-store")]
mod objects;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "scylla")]
mod scylla;
#[cfg(feature = "scylla")]
mod scylla_locked;

use vvm_storage::{OpenError, OpenErrorKind};

/// Fails without the variable, so that no test is skipped.
fn server(variable: &str, example: &str, driver: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable}={example} says where a server is; `cargo xtask test-drivers --only {driver}` starts one"
        )
    })
}

async fn refused(url: &str) -> OpenError {
    driver::opened(url).await.expect_err("opened")
}

async fn is_refused(url: &str, kind: OpenErrorKind, parts: &[&str]) {
    let error = refused(url).await;
    assert_eq!(error.kind(), kind, "{error}");
    says(&error, parts);
}

#[track_caller]
fn says(error: &OpenError, parts: &[&str]) {
    println!("{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
}
