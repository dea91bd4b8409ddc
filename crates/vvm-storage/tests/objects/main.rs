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

#[path = "../suites/driver.rs"]
mod driver;
mod handles;
mod racy;

use driver::Driver;
use std::sync::Arc;
use tokio::sync::OnceCell;
use vvm_clock::SystemClock;
use vvm_storage::{cells::Cells, init_storage, objects::ObjectCells};

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

fn fresh() -> String {
    driver::fresh("objects").replace('_', "-")
}

async fn opened(url: &str) -> Cells<ObjectCells> {
    Cells::new(ObjectCells::open(url, Arc::new(SystemClock::start().unwrap())).await.unwrap())
}

/// One prefix for all cases. Races the server once.
async fn driver() -> Driver {
    static DRIVER_IS_READY: OnceCell<()> = OnceCell::const_new();
    let url = url("suites");
    DRIVER_IS_READY.get_or_init(async || init_storage(&url).await.unwrap()).await;
    Driver::at(url).with_ttl(Driver::TTL_ON_A_SERVER)
}

mod suites {
    use super::{driver, driver::all_suites_on_a_server};

    all_suites_on_a_server!(driver().await);
}
