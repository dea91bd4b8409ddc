#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    fences::limits,
    stage::{
        Stage, delete, delete_if, document, documents, fence, id, put, put_if, read_document, read_state,
        sent, settled, version,
    },
};
use crate::{
    BatchOutcome, Claim, Document, DocumentId, Key, OnlyIf, ReadError, Scan, TtlStorage, WriteError,
    testing::contract::{contention::hostile_names, scene::held},
};
use futures_util::future::{Either, join_all, select};
use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;
use vvm_clock::{Clock as _, SystemClock};

const WRITERS: u8 = 8;
const BATCHES: u32 = 100;

/// How long 8 writers may write. A cluster that agrees on each batch applies a few dozen a second of competing ones.
const LONGEST_WRITING: Duration = Duration::from_secs(30);

const DROPPERS: u8 = 6;

/// The first batch that is dropped. Those before it show how long one takes.
const FIRST_DROPPED: u64 = 6;

const DROPPED: u64 = 400;

/// The last one that is dropped in any case.
const DROPPED_AT_LEAST: u64 = 10;

/// A server that goes on after its client has gone may show that at one moment in a hundred.
const LONGEST_DROPPING: Duration = Duration::from_secs(2);

/// A timer may be late by this, which is longer than some storages take for a batch.
const PUNCTUAL: Duration = Duration::from_micros(200);

pub async fn one_of_many_concurrent_batches_is_applied(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    for round in 0..20 {
        let mut writers = JoinSet::new();
        for writer in 1..=WRITERS {
            let handle = if writer % 2 == 0 { &stage.scene.here } else { &stage.scene.there };
            let (handle, key, fence) = (Arc::clone(handle), stage.scene.key.clone(), stage.fence(round));
            writers.spawn(async move {
                let batch = [put("winner", [writer]), put([writer, round as u8], "landed")];
                // An undecided batch is decided once the others have ended: the count has moved.
                let outcome = sent(&*handle, &key, &fence, &batch).await;
                (outcome == Some(BatchOutcome::Written)).then_some(writer)
            });
        }
        let winners: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
        settled(&*stage.scene.here, &stage.scene.key, &stage.fence(round), &[]).await;
        let landed = stage.shown().await;
        let landed: Vec<_> = landed.iter().filter(|document| document.version.get() == round + 1).collect();
        assert_eq!(stage.last().await, round + 1);
        assert!(winners.len() <= 1, "{winners:?}");
        if let [winner] = winners[..] {
            assert_eq!(landed.len(), 2, "{landed:?}");
            assert!(landed.iter().any(|document| document.body == [winner][..]), "{landed:?}");
        }
        assert!([0, 2].contains(&landed.len()), "{landed:?}");
    }
}

pub async fn eight_writers_lose_no_batch(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let end = SystemClock::read().after(LONGEST_WRITING);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let handle = if writer % 2 == 0 { &stage.scene.here } else { &stage.scene.there };
        let (handle, key, entry) = (Arc::clone(handle), stage.scene.key.clone(), stage.entry.clone());
        writers.spawn(async move {
            let mut written = Vec::new();
            while written.len() < BATCHES as usize && SystemClock::read() < end {
                let name = [&[writer][..], &(written.len() as u32).to_be_bytes()].concat();
                let batch = [put_if(&name, "once", OnlyIf::Absent), put("shared", &name)];
                loop {
                    let state = read_state(&*handle, &key).await;
                    // (I7) An undecided attempt has been applied, or never will be once the count has moved.
                    if read_document(&*handle, &key, &id(&name)).await.is_some() {
                        break;
                    }
                    tokio::task::yield_now().await;
                    let fence = fence(&entry, state.last.get());
                    if sent(&*handle, &key, &fence, &batch).await == Some(BatchOutcome::Written) {
                        break;
                    }
                }
                written.push(id(&name));
            }
            written
        });
    }
    let written: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    assert!(!written.is_empty(), "not one batch in {LONGEST_WRITING:?}");
    let written: BTreeSet<DocumentId> = written.into_iter().collect();
    let mut shown = stage.shown().await;
    let shared = shown.pop().expect("the shared document");
    assert_eq!(shared.id, id("shared"));
    let standing: BTreeSet<_> = shown.iter().map(|document| document.id.clone()).collect();
    assert_eq!(standing, written);
    // Each batch has put one document that was not changed since, so there are as many versions as batches.
    // The last one belongs to the shared document.
    let versions: BTreeSet<_> = shown.iter().map(|document| document.version.get()).collect();
    assert_eq!(versions, (1..=written.len() as u64).collect());
    assert_eq!((stage.last().await, shared.version.get()), (written.len() as u64, written.len() as u64));
    assert_eq!(
        shown.iter().find(|document| document.version == shared.version).map(|last| last.id.as_bytes()),
        Some(&*shared.body)
    );
}

/// A leader writes while it is deposed and after that: only what came before the take-over is applied. Shows I2.
pub async fn batches_of_a_leader_after_its_deposition_are_refused(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    let mut number = 0;
    for round in 0..12 {
        let (old, handle, key) =
            (stage.entry.clone(), Arc::clone(&stage.scene.here), stage.scene.key.clone());
        let deposed = Arc::new(AtomicBool::new(false));
        let goes_on = Arc::clone(&deposed);
        let writer = tokio::spawn(async move {
            let (mut after, mut left) = (number, 20);
            while left > 0 {
                left -= u64::from(goes_on.load(Ordering::SeqCst));
                match sent(&*handle, &key, &fence(&old, after), &[put("a", after.to_string())]).await {
                    Some(BatchOutcome::Written) => after += 1,
                    // The fence has moved, or this batch was applied: the count shows where to continue.
                    Some(BatchOutcome::Refused) | None => {
                        after = read_state(&*handle, &key).await.last.get();
                    }
                }
                tokio::task::yield_now().await;
            }
        });
        // In flight before the take-over, so that both compete.
        while read_state(&*stage.scene.there, &stage.scene.key).await.last.get() < number + 5 {
            tokio::task::yield_now().await;
        }
        // At another moment of a write in each round, also on one thread.
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        take_over(&mut stage).await;
        let stands = (stage.last().await, stage.shown().await);
        deposed.store(true, Ordering::SeqCst);
        writer.await.unwrap();
        assert_eq!((stage.last().await, stage.shown().await), stands);
        number = stands.0;
    }
}

async fn take_over<K: crate::Key>(stage: &mut Stage<K>) {
    let author = stage.entry.incarnation().as_bytes()[0] + 1;
    let next = stage.scene.entry(author, stage.entry.epoch.get() + 1);
    let there: &dyn TtlStorage<K> = &*stage.scene.there;
    loop {
        match there.take_over(&stage.scene.key, &stage.entry, &next).await {
            Ok(Claim::Claimed) => break,
            Ok(Claim::Refused(slot)) if slot.entry() == Some(&next) => break,
            Ok(Claim::Refused(slot)) => panic!("{slot:?}"),
            Err(crate::WriteError::NotApplied(_) | crate::WriteError::Unknown(_)) => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    stage.entry = next;
    // It settles what was in flight before.
    let _seen = read_state(there, &stage.scene.key).await;
}

fn hostile_ids(most: usize) -> Vec<Vec<u8>> {
    let mut names = hostile_names();
    for byte in [0, 1, b'x', 0xfe, 0xff] {
        names.extend([most - 1, most].map(|length| vec![byte; length]));
    }
    // Equal except for the last byte: a storage that cuts ids would confuse them.
    names.extend([b'a', b'b'].map(|last| [vec![b'y'; most - 1], vec![last]].concat()));
    // In the middle, at the end, doubled: as separators and terminators are encoded.
    names
        .extend((0..4_u8).flat_map(|end| [vec![b'a', 0, end], vec![b'a', 0xff, end], vec![0xff, 0xff, end]]));
    names.retain(|name| (1..=most).contains(&name.len()));
    names.sort();
    names.dedup();
    names
}

pub async fn documents_of_any_id_are_independent(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let ids = hostile_ids(limits(&stage).max_id_bytes);
    let body = |name: &Vec<u8>| {
        format!("{} bytes, {}", name.len(), name.iter().take(9).map(u8::to_string).collect::<String>())
    };
    let puts: Vec<_> = ids.iter().map(|name| put(name, body(name))).collect();
    let mut last = stage.all_written(0, &puts).await;
    let shown = stage.shown().await;
    assert_eq!(shown.iter().map(|document| document.id.as_bytes()).collect::<Vec<_>>(), ids);
    for (name, shown) in ids.iter().zip(&shown) {
        assert_eq!(shown.body, body(name), "{name:?}");
        assert_eq!(stage.document(&id(name)).await.as_ref(), Some(shown), "{name:?}");
    }
    assert_eq!(stage.scene.stands().await, held(&stage.entry));

    let (kept, gone): (Vec<_>, Vec<_>) = ids.iter().enumerate().partition(|(number, _)| number % 2 == 0);
    let deletes: Vec<_> = gone.iter().map(|(_, name)| delete(name)).collect();
    last = stage.all_written(last, &deletes).await;
    let expected: Vec<&Document> = kept.iter().map(|(number, _)| &shown[*number]).collect();
    assert_eq!(stage.shown().await.iter().collect::<Vec<_>>(), expected);
    for (_, name) in gone {
        assert_eq!(stage.document(&id(name)).await, None, "{name:?}");
    }
    assert_eq!((stage.last().await, stage.scene.stands().await), (last, held(&stage.entry)));
}

pub async fn bodies_of_any_bytes_are_kept(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let longest = limits(&stage).max_body_bytes;
    let bodies = [
        vec![],
        vec![0],
        vec![0, 0, b'a'],
        vec![0xff],
        (0..=255).collect(),
        (0..=255).rev().collect(),
        vec![0; longest],
        (0..longest).map(|number| (number % 251) as u8).collect(),
    ];
    let mut last = 0;
    // Each document gets each body in turn, first forwards and then backwards.
    for round in 0..3 {
        let body = |number: usize| &bodies[if round == 1 { bodies.len() - 1 - number } else { number }];
        let puts: Vec<_> = (0..bodies.len()).map(|number| put([number as u8], body(number))).collect();
        last = stage.all_written(last, &puts).await;
        let shown = stage.shown().await;
        assert_eq!(shown.len(), bodies.len());
        for (number, shown) in shown.into_iter().enumerate() {
            assert!(shown.body == body(number), "body {number} is not as it was, round {round}");
            assert!(stage.document(&shown.id).await == Some(shown), "body {number}, round {round}");
        }
    }
}

pub async fn documents_of_different_keys_are_independent(storage: &impl StorageUnderTest) {
    let names: [&[u8]; 9] = [b"", b"a", b"aa", b"a\0", b"a\0\0", b"\0a", b"aaa", b"a\xff", b"\xff"];
    let ids: [&[u8]; 7] = [b"a", b"aa", b"\0", b"\0a", b"a\0", b"\xff", b"\x01"];
    let mut stages = Vec::new();
    for name in names {
        stages.push(Stage::led_at(storage, name).await);
    }
    // Another number of batches at each key, so that a shared count would show.
    for (number, stage) in (1_u8..).zip(&stages) {
        for after in 0..number {
            let puts = ids.map(|id| put(id, [number, after]));
            stage.written(after.into(), &puts).await;
        }
    }
    for (number, stage) in (1_u8..).zip(&stages) {
        stands(stage, number, &ids).await;
    }
    for (number, stage) in (1_u8..).zip(&stages).step_by(2) {
        stage.written(number.into(), &ids.map(delete)).await;
        stage.scene.release(&stage.entry).await;
    }
    for (number, stage) in (1_u8..).zip(&stages) {
        if number % 2 == 1 {
            assert_eq!((stage.last().await, stage.shown().await), (u64::from(number) + 1, vec![]));
        } else {
            stands(stage, number, &ids).await;
        }
    }
}

async fn stands<K: Key>(stage: &Stage<K>, number: u8, ids: &[&[u8]]) {
    let mut expected: Vec<_> =
        ids.iter().map(|id| document(id, number.into(), [number, number - 1])).collect();
    expected.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!((stage.last().await, stage.shown().await), (number.into(), expected), "{:?}", stage.scene.key);
    assert_eq!(stage.scene.stands().await, held(&stage.entry), "{:?}", stage.scene.key);
}

/// Drops batches at every part of the time that one takes, in a few slots at once: that finds more on a busy machine.
pub async fn a_dropped_batch_is_applied_whole_or_not_at_all(storage: &impl StorageUnderTest) {
    let mut stages = Vec::new();
    for name in 0..DROPPERS {
        stages.push(Stage::led_at(storage, &[name]).await);
    }
    let clock = SystemClock::start().unwrap();
    join_all(stages.iter().map(|stage| drops_batches(stage, &clock))).await;
}

/// An empty batch after the same one shows the outcome: it is applied instead of the dropped one, or refused. Each
/// batch replaces all that the one before it wrote, on condition that this stands. So the first that is written in
/// part refuses all behind it, and is seen at the end.
async fn drops_batches<K: Key>(stage: &Stage<K>, clock: &SystemClock) {
    let (mut writer, mut other, key) = (&*stage.scene.here, &*stage.scene.there, &stage.scene.key);
    let of = |round: u64| format!("of {round}");
    let names = |round: u64| ["a".to_owned(), "b".to_owned(), of(round)];
    let replacing = |before: u64, round: u64| {
        let (body, only_if) = (round.to_string(), OnlyIf::Version(version(before)));
        let [a, b, new] = names(round);
        let [a, b] = [a, b].map(|name| put_if(name, &body, only_if));
        [a, delete_if(of(before), only_if), b, put_if(new, &body, OnlyIf::Absent)]
    };
    stage.written(0, &names(1).map(|name| put(name, "1"))).await;
    let (mut last, mut stands, mut whole) = (1, 1, LONGEST_DROPPING);
    let end = SystemClock::read().after(LONGEST_DROPPING);
    while last < DROPPED && (last < DROPPED_AT_LEAST || SystemClock::read() < end) {
        let (fence, round) = (stage.fence(last), last + 1);
        let batch = replacing(stands, round);
        // The golden ratio spreads any number of rounds evenly.
        let after = if round < FIRST_DROPPED {
            LONGEST_DROPPING
        } else {
            whole.mul_f64((round as f64 * 0.618_034).fract())
        };
        let began = SystemClock::read();
        let over = async {
            if after > PUNCTUAL {
                return clock.sleep(after).await;
            }
            while SystemClock::read() < began.after(after) {
                tokio::task::yield_now().await;
            }
        };
        if let Either::Left((Ok(_), _)) =
            select(documents(writer).write_documents(key, &fence, &batch), pin!(over)).await
        {
            // The shortest is the one that other programs on the machine did not delay.
            whole = whole.min(began.until(SystemClock::read()));
        }
        let landed = match sent(other, key, &fence, &[]).await {
            Some(outcome) => outcome == BatchOutcome::Refused,
            None => {
                settled(other, key, &fence, &[]).await;
                read_document(other, key, &id(of(round))).await.is_some()
            }
        };
        (last, stands) = (round, if landed { round } else { stands });
        // The next batch finds the connection that showed this outcome.
        (writer, other) = (other, writer);
    }
    assert!(stands > 1, "no batch was applied");
    let mut expected = names(stands).map(|name| document(name, stands, stands.to_string()));
    expected.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!((stage.last().await, stage.shown().await), (last, expected.to_vec()));
}

pub async fn a_closed_handle_refuses_documents_for_good(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    let (handle, key) = (storage.open().await, &stage.scene.key);
    handle.close().await;
    let closed = documents(&*handle);
    for batch in [&[put("a", "2")][..], &[]] {
        let write = closed.write_documents(key, &stage.fence(1), batch).await;
        assert!(matches!(write, Err(WriteError::Fatal(_))), "write: {write:?}");
    }
    let state = closed.fence_state(key).await;
    assert!(matches!(state, Err(ReadError::Fatal(_))), "state: {state:?}");
    let read = closed.document(key, &id("a")).await;
    assert!(matches!(read, Err(ReadError::Fatal(_))), "read: {read:?}");
    let scan = closed.scan_documents(key, &Scan { limit: 1, ..Scan::default() }).await;
    assert!(matches!(scan, Err(ReadError::Fatal(_))), "scan: {scan:?}");
    assert_eq!((stage.last().await, stage.shown().await), (1, vec![document("a", 1, "1")]));
    stage.written(1, &[put("a", "2")]).await;
}
