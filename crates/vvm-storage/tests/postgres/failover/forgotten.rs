//! An asynchronous standby that is promoted has forgotten the primary's last writes. Each hole that follows
//! is tried on records.

use super::{Pair, TTL, claimed, client, entry, peeked, slot_of, text};
use crate::VACANT;
use ielections::documents::DocumentVersion;
use ielections::{Entry, Epoch, Fence, Slot, Vacant, WriteError};
use std::time::Duration;
use vvm_storage::{Done, Partition, Shown, Step, SysVvmStorage, init_storage, postgres::PostgresStorage};

fn vacant(epoch: u64) -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(Epoch::new(epoch).unwrap()) })
}

/// Claims a slot and releases it.
async fn vacated(storage: &PostgresStorage, name: &str, epoch: u64) {
    let held = entry(epoch, 1, TTL);
    claimed(storage, name, &VACANT, &held).await;
    storage.commit(slot_of(name), Step::release(held.incarnation(), held.epoch)).await.unwrap();
}

/// What stands in a slot under which a forgotten leader may be at work: a record of no leader, which standbys
/// observe for the largest TTL.
fn is_waiting(slot: &Slot, forgotten: u64) -> bool {
    slot.entry().is_some_and(|entry| entry.ttl.get() == TTL && entry.epoch.get() > forgotten)
}

async fn refused_claim(storage: &PostgresStorage, name: &str, from: &Slot, entry: &Entry) -> Slot {
    match storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap() {
        Done::Refused(Shown::Slot(stands)) => stands,
        other => panic!("{name}: {other:?} although a forgotten leader may be at work"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_whose_claim_was_forgotten_is_waited_for() {
    let mut pair = Pair::start().await;
    let leader = pair.open().await;
    vacated(&leader, "released", 5).await;
    pair.cut().await;
    // Both claims are acknowledged, and forgotten.
    claimed(&leader, "released", &vacant(5), &entry(6, 1, TTL)).await;
    claimed(&leader, "new", &VACANT, &entry(6, 1, TTL)).await;
    // It has seen nothing since then.
    let before = pair.open().await;
    pair.fail_over();
    let after = pair.open().await;
    for candidate in [&before, &after] {
        for (name, from) in [("released", vacant(5)), ("new", VACANT)] {
            let stands = refused_claim(candidate, name, &from, &entry(7, 1, TTL)).await;
            assert!(is_waiting(&stands, 6), "{name}: {stands:?}");
            assert_eq!(candidate.read(slot_of(name)).await.unwrap(), stands, "{name}");
        }
    }
    // Observed for its TTL, it is taken over like any other.
    let stands = after.read(slot_of("released")).await.unwrap();
    let next = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&after, "released", &stands, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_ttl_that_the_promoted_server_forgot_is_waited_for() {
    let mut pair = Pair::start().await;
    let (early, long) = (pair.open().await, Duration::from_secs(9));
    let raised = pair.url().replace("max_ttl=2s", "max_ttl=9s");
    pair.cut().await;
    // The standby has not heard of the raised bound, nor of the claims that it allows.
    init_storage(&raised).await.unwrap();
    let leader = pair.open().await;
    for name in ["old", "new"] {
        claimed(&leader, name, &VACANT, &entry(5, 1, long)).await;
    }
    pair.fail_over();
    // One that opened before knows no more than the new server does.
    let adopted = refused_claim(&early, "old", &VACANT, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&adopted, 0), "{adopted:?}");
    // The handle that knows it, and a newcomer whose URL says it, make all wait anew, and new slots as well.
    let told = PostgresStorage::open(&raised).await.unwrap();
    for (candidate, name) in [(&leader, "old"), (&told, "old"), (&early, "old"), (&told, "new")] {
        let stands = refused_claim(candidate, name, &VACANT, &entry(6, 1, TTL)).await;
        let record = stands.entry().unwrap();
        assert_eq!(record.ttl.get(), long, "{name}: {stands:?}");
        assert_ne!(Some(record.version), adopted.entry().map(|adopted| adopted.version), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn observation_does_not_continue_across_a_fail_over() {
    let mut pair = Pair::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    let (first, second) = (entry(5, 1, TTL), entry(5, 2, TTL));
    claimed(&leader, "slot", &VACANT, &first).await;
    let observed = peeked(&observer, "slot").await;
    pair.cut().await;
    // The renewal is forgotten: the version that the observer has seen stands again, as old as it was.
    assert_eq!(leader.commit(slot_of("slot"), Step::renew(&first, &second)).await.unwrap(), Done::Applied);
    pair.fail_over();
    let stands = refused_claim(&observer, "slot", &observed, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&stands, 5) && stands != observed, "{stands:?}");
    assert_eq!(peeked(&observer, "slot").await, stands);
    // A look alone shows it, too.
    let newcomer = pair.open().await;
    assert_eq!(peeked(&newcomer, "slot").await, stands);
}

#[tokio::test(flavor = "multi_thread")]
async fn look_after_a_fail_over_shows_a_new_version_and_no_smaller_epoch() {
    let mut pair = Pair::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    vacated(&leader, "slot", 5).await;
    assert_eq!(peeked(&observer, "slot").await, vacant(5));
    pair.cut().await;
    claimed(&leader, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert_eq!(peeked(&observer, "slot").await.last_epoch(), Epoch::new(6).ok());
    pair.fail_over();
    // The plain look adopts: no candidate sees epoch 5 again.
    let stands = peeked(&observer, "slot").await;
    assert!(is_waiting(&stands, 6), "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn epoch_is_not_given_out_again() {
    let mut pair = Pair::start().await;
    let leader = pair.open().await;
    vacated(&leader, "slot", 5).await;
    pair.cut().await;
    // As elections choose it, with a clock that is hours ahead.
    let wall = client(&pair.primary).await;
    let millis = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text";
    let hours_ahead: u64 = text(&wall, millis).await.parse::<u64>().unwrap() + 23 * 3_600_000;
    claimed(&leader, "slot", &vacant(5), &entry(hours_ahead, 1, TTL)).await;
    pair.fail_over();
    let stands = refused_claim(&pair.open().await, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert!(stands.last_epoch().unwrap().get() > hours_ahead, "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_of_the_old_history_is_replaced() {
    let mut pair = Pair::start().await;
    let leader = pair.open().await;
    let held = entry(5, 1, TTL);
    claimed(&leader, "slot", &VACANT, &held).await;
    pair.cut().await;
    pair.fail_over();
    // The row is there, as it was written. Only the server's history shows that it is another server.
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    let batch = leader.commit(slot_of("slot"), Step::batch(&fence, &[])).await;
    assert!(matches!(batch, Err(WriteError::Replaced(_))), "{batch:?}");
    let renewal = leader.commit(slot_of("slot"), Step::renew(&held, &entry(5, 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    let release = leader.commit(slot_of("slot"), Step::release(held.incarnation(), held.epoch)).await;
    assert!(matches!(release, Err(WriteError::Replaced(_))), "{release:?}");
    // After another candidate has adopted the history, the record itself is another one.
    let stands = refused_claim(&pair.open().await, "slot", &VACANT, &entry(6, 1, TTL)).await;
    let Ok(Done::Refused(Shown::Slot(shown))) = ({
        peeked(&leader, "slot").await;
        leader.commit(slot_of("slot"), Step::renew(&held, &entry(5, 2, TTL))).await
    }) else {
        panic!("renewed")
    };
    assert_eq!(shown, stands);
}

#[tokio::test(flavor = "multi_thread")]
async fn standbys_that_are_promoted_independently_are_told_apart() {
    let mut pair = Pair::start().await;
    let mut other = pair.primary.standby().unwrap();
    let held = entry(5, 1, TTL);
    claimed(&pair.open().await, "slot", &VACANT, &held).await;
    // Adoption leaves requests of operators as they are.
    let (pause, paused) = (Partition::from_bytes(*b"\x03name"), held.clone());
    assert_eq!(
        pair.open().await.commit(pause.clone(), Step::claim(&VACANT, &paused)).await.unwrap(),
        Done::Applied
    );
    pair.cut().await;
    pair.primary.kill().unwrap();
    other.promote().unwrap();
    pair.standby.restart().unwrap();
    pair.standby.promote().unwrap();
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";
    let (one, two) = (client(&pair.standby).await, client(&other).await);
    assert_eq!(text(&one, timeline).await, text(&two, timeline).await);
    // A leader on the one that is promoted first …
    let url = format!("postgres://postgres@{},{}/postgres", other.address(), pair.standby.address());
    let leader = PostgresStorage::open(&url).await.unwrap();
    let stands = refused_claim(&leader, "slot", &VACANT, &held).await;
    let held = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&leader, "slot", &stands, &held).await;
    // … which is not seen on the other one, although both are on the same timeline of the same system.
    // There, another candidate has adopted the history: the witness alone differs.
    other.kill().unwrap();
    let newcomer = PostgresStorage::open(&pair.standby.url("postgres")).await.unwrap();
    peeked(&newcomer, "slot").await;
    let renewal = leader.commit(slot_of("slot"), Step::renew(&held, &entry(held.epoch.get(), 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    // This row is the same on both: the witness in the statement alone tells.
    let replaced = leader.commit(pause, Step::renew(&paused, &entry(5, 2, TTL))).await;
    assert!(matches!(replaced, Err(WriteError::Replaced(_))), "{replaced:?}");
    let stands = refused_claim(&leader, "slot", &stands, &entry(held.epoch.get() + 1, 1, TTL)).await;
    assert!(is_waiting(&stands, held.epoch.get()), "{stands:?}");
}
