//! The driver on a real PostgreSQL.
//!
//! - `suites`: the public suites, each case with names of its own.
//! - `handles`: refusals, errors and connections of a handle.
//! - `encrypted`: TLS, on servers that the tests start.
//! - `failover`: servers that the tests start: standbys that are promoted, and settings that are refused.
//! - `hints`: notifications.
//! - `pooled`: what differs behind a pooler.
//!
//! `cargo xtask test-drivers --only postgres` starts a server and runs this with
//! `VVM_TEST_POSTGRES=postgres://…`; a server of your own will do for `suites`, `handles` and `hints`. It
//! creates databases named `vvm_test_…` and leaves them there.
#![cfg(feature = "postgres")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod encrypted;
mod failover;
mod handles;
mod hints;
mod pooled;
mod suites;

use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};
use vvm_storage::{OpenError, Partition, postgres::PostgresStorage};

/// Returns where the server is. Fails without the variable, so that no test is skipped.
fn server() -> String {
    std::env::var("VVM_TEST_POSTGRES").expect(
        "VVM_TEST_POSTGRES=postgres://user@host/database says where a server is; `cargo xtask test-drivers \
         --only postgres` starts one",
    )
}

/// How long a request may take: as in `dynamodb.rs`. The suites use TTLs of all lengths.
const OPTIONS: &str = "request_timeout=20s&max_ttl=86400s";

fn url(database: &str) -> String {
    let server = server();
    let (place, _) = server.rsplit_once('/').unwrap();
    format!("{place}/{database}?{OPTIONS}")
}

/// Another program's connection to a database of the server.
async fn client(database: &str) -> Client {
    client_at(&url(database)).await
}

/// Another program's connection.
async fn client_at(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A name that no run before had.
fn fresh() -> String {
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    format!("vvm_test_{}", bytes.map(|byte| format!("{byte:02x}")).concat())
}

/// The database that the server's URL names.
fn first_database() -> String {
    server().rsplit_once('/').unwrap().1.to_owned()
}

/// A database that no run before had.
async fn fresh_database() -> String {
    let name = fresh();
    client(&first_database()).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    name
}

async fn refused(url: &str) -> OpenError {
    PostgresStorage::open(url).await.expect_err("opened")
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
