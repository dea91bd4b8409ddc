//! Synchronous replication: what a cancelled wait leaves on the primary alone is not taken for written.

use super::{Pair, TTL, claimed, client, entry, peeked, slot_of, text};
use crate::VACANT;
use ielections::{ReadError, WriteError};
use std::sync::Arc;
use tokio_postgres::Client;
use vvm_storage::{Step, SysVvmStorage, postgres::PostgresStorage};

const WAITING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'vvm'";

async fn make_synchronous(client: &Client) {
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    while text(client, "SHOW synchronous_standby_names").await != "standby" {
        tokio::task::yield_now().await;
    }
}

/// Opens the storage with a short time limit, which even the primary may miss on a busy machine.
async fn hasty(pair: &Pair) -> PostgresStorage {
    let url = pair.url().replace("request_timeout=4s", "request_timeout=300ms");
    loop {
        match PostgresStorage::open(&url).await {
            Ok(storage) => return storage,
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_without_a_standby_leave_one_connection_waiting_for_each_record() {
    let mut pair = Pair::start().await;
    let patient = pair.open().await;
    let names = ["one", "two"];
    for name in names {
        claimed(&patient, name, &VACANT, &entry(5, 1, TTL)).await;
    }
    let storage = hasty(&pair).await;
    let other = client(&pair.primary).await;
    make_synchronous(&other).await;
    pair.cut().await;
    for write in 2..10 {
        for name in names {
            let renewal =
                storage.commit(slot_of(name), Step::renew(&entry(5, 1, TTL), &entry(5, write, TTL))).await;
            // The first one waits, and has the row locked. The others give up at the lock.
            assert!(
                matches!(renewal, Err(WriteError::Unknown(_) | WriteError::NotApplied(_))),
                "{renewal:?}"
            );
            let read = storage.read(slot_of(name)).await;
            assert!(matches!(read, Err(ReadError::Unavailable(_))), "{read:?}");
        }
    }
    let waiting = text(&other, &format!("SELECT count(*)::text {WAITING}")).await;
    assert_eq!(waiting, "2", "connections that wait for the standby");
    pair.standby.restart().unwrap();
    for name in names {
        while storage.read(slot_of(name)).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(text(&other, &format!("SELECT count(*)::text {WAITING}")).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_no_standby_has_is_unknown_and_not_read_back() {
    let mut pair = Pair::start().await;
    let storage = Arc::new(pair.open().await);
    let held = entry(5, 1, TTL);
    claimed(&storage, "slot", &VACANT, &held).await;
    let other = client(&pair.primary).await;
    make_synchronous(&other).await;
    pair.cut().await;

    // The commit waits for the standby. Cancelled, it is answered with success, and a warning.
    let renewed = entry(5, 2, TTL);
    let renewal = tokio::spawn({
        let (storage, held, renewed) = (Arc::clone(&storage), held.clone(), renewed.clone());
        async move { storage.commit(slot_of("slot"), Step::renew(&held, &renewed)).await }
    });
    while other.query(&format!("SELECT pg_cancel_backend(pid) {WAITING}"), &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let renewal = renewal.await.unwrap();
    let Err(WriteError::Unknown(cause)) = renewal else { panic!("{renewal:?}") };
    assert!(cause.to_string().contains("standby"), "{cause}");

    // A plain look shows it. What confirms a write does not, before a standby has it.
    assert_eq!(peeked(&storage, "slot").await.entry(), Some(&renewed));
    let read = storage.read(slot_of("slot")).await;
    assert!(matches!(read, Err(ReadError::Unavailable(_))), "{read:?}");
    let fence = storage.fence_state(&slot_of("slot")).await;
    assert!(matches!(fence, Err(ReadError::Unavailable(_))), "{fence:?}");
    // A refusal shows what stands, and confirms as well.
    let again = storage.commit(slot_of("slot"), Step::renew(&held, &entry(5, 3, TTL))).await;
    assert!(matches!(again, Err(WriteError::Unknown(_) | WriteError::NotApplied(_))), "{again:?}");

    pair.standby.restart().unwrap();
    let read = storage.read(slot_of("slot")).await.unwrap();
    assert_eq!(read.entry(), Some(&renewed));
}
