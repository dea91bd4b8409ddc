//! Standbys that are promoted, and settings by which a server would forget: on servers that each test starts.
//!
//! A standby that is killed before the primary's last writes, and started again after the primary's end, has
//! forgotten them when it is promoted.

mod forgotten;
mod outage;
mod replicated;

use super::{TTL, client_at, entry, refused, slot_of};
use ielections::{Entry, Slot};
use servers::postgres::Postgres;
use std::path::Path;
use tokio_postgres::Client;
use vvm_storage::{Done, Step, SysVvmStorage, init_storage, postgres::PostgresStorage};

/// A primary and a standby of it.
struct Pair {
    primary: Postgres,
    standby: Postgres,
}

/// The bound of all TTLs here.
const OPTIONS: &str = "max_ttl=2s&request_timeout=4s";

impl Pair {
    /// With the storage ready. The standby is asynchronous.
    async fn start() -> Self {
        let mut primary = start(&[]);
        init_storage(&format!("{}?{OPTIONS}", primary.url("postgres"))).await.unwrap();
        let standby = primary.standby().unwrap();
        Self { primary, standby }
    }

    /// Both hosts, the primary first.
    fn url(&self) -> String {
        let (first, second) = (self.primary.address(), self.standby.address());
        format!("postgres://postgres@{first},{second}/postgres?{OPTIONS}")
    }

    async fn open(&self) -> PostgresStorage {
        PostgresStorage::open(&self.url()).await.unwrap()
    }

    /// Ends the standby once it has all that was written so far.
    async fn cut(&mut self) {
        let (primary, standby) = (client(&self.primary).await, client(&self.standby).await);
        let written: String = text(&primary, "SELECT pg_current_wal_flush_lsn()::text").await;
        let received = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::text");
        while text(&standby, &received).await != "true" {
            tokio::task::yield_now().await;
        }
        self.standby.kill().unwrap();
    }

    /// Ends the primary and promotes the standby.
    fn fail_over(&mut self) {
        self.primary.kill().unwrap();
        self.standby.restart().unwrap();
        self.standby.promote().unwrap();
    }
}

fn start(settings: &[&str]) -> Postgres {
    Postgres::start(Path::new("../../target"), &[], settings).unwrap()
}

async fn client(server: &Postgres) -> Client {
    client_at(&server.url("postgres")).await
}

async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.unwrap().get(0)
}

async fn claimed(storage: &PostgresStorage, name: &str, from: &Slot, entry: &Entry) {
    assert_eq!(storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap(), Done::Applied);
}

async fn peeked(storage: &PostgresStorage, name: &str) -> Slot {
    storage.peek(&[slot_of(name)]).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_would_forget_is_refused() {
    for (setting, value) in [("fsync", "off"), ("synchronous_commit", "off"), ("synchronous_commit", "local")]
    {
        let server = start(&[&format!("{setting}={value}")]);
        let error = refused(&server.url("postgres")).await;
        let says = format!("has {setting} = {value}, so that a crash forgets leaders");
        assert!(error.to_string().contains(&says), "{error}");
        assert!(!error.is_passing(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_is_refused_until_it_is_promoted() {
    let mut pair = Pair::start().await;
    let error = refused(&pair.standby.url("postgres")).await;
    assert!(error.to_string().contains("is a standby or read-only") && error.is_passing(), "{error}");
    pair.cut().await;
    pair.fail_over();
    assert!(PostgresStorage::open(&pair.standby.url("postgres")).await.is_ok());
}
