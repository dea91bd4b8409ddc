//! The driver of object stores on a real server.
//!
//! - `suites`: the public suites, each case with names of its own.
//! - `handles`: what is refused, described and found.
//! - `racy`: servers that lose writes are refused.
//!
//! `cargo xtask test-drivers --only s3` starts a server and runs this with `VVM_TEST_S3=s3://…`; a bucket of
//! your own will do, with its platform's variables for credentials: `gs://…` and `az://…` work, too. Objects
//! below the prefix are left there.
#![cfg(feature = "object-store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod handles;
mod racy;
mod suites;

use std::sync::Arc;
use vvm_clock::SystemClock;
use vvm_storage::{cells::Cells, objects::ObjectCells};

/// Returns where the server is. Fails without the variable, so that no test is skipped.
fn server() -> String {
    std::env::var("VVM_TEST_S3").expect(
        "VVM_TEST_S3=s3://bucket/prefix?region=… says where a bucket is; `cargo xtask test-drivers --only \
         s3` starts a server",
    )
}

/// Returns a URL below the server's prefix. A busy machine may need more than 2 s for a request.
fn url(name: &str) -> String {
    format!("{}&request_timeout=20s", below(&server(), name))
}

fn below(server: &str, name: &str) -> String {
    let (place, options) = server.split_once('?').unwrap_or((server, ""));
    format!("{place}/{name}?{options}")
}

/// A name that no run before had.
fn fresh() -> String {
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    format!("vvm-test-{}", bytes.map(|byte| format!("{byte:02x}")).concat())
}

async fn opened(url: &str) -> Cells<ObjectCells> {
    let clock = Arc::new(SystemClock::start().unwrap());
    Cells::new(ObjectCells::open(url, clock.clone()).await.unwrap(), clock)
}
