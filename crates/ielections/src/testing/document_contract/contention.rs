//! Contention: of many batches after the same one exactly one is applied, and none is lost or applied twice.

use super::{
    StorageUnderTest,
    calls::{self, sent, settled},
    stage::{Stage, fence, id, put, put_if},
};
use crate::{BatchOutcome, Claim, DocumentId, OnlyIf, TtlStorage};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;
use vvm_clock::SystemClock;

const WRITERS: u8 = 8;
const BATCHES: u32 = 100;

/// How long eight writers may write. A cluster whose nodes agree on each batch applies a few dozen a second,
/// if independent writers compete.
const LONGEST_WRITING: Duration = Duration::from_secs(30);

/// Of many concurrent batches after the same one, one is applied.
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
        // If all are undecided, an empty batch settles it.
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

/// Eight writers of one leadership retry until they succeed. Every batch that was reported as written is
/// there, once, and the count is their number.
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
                    let state = calls::state(&*handle, &key).await;
                    // (I7) An undecided attempt has been applied, or never will be once the count has moved.
                    if calls::document(&*handle, &key, &id(&name)).await.is_some() {
                        break;
                    }
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

/// A leader writes while it is deposed and after that, in many rounds. Only what it had written before the
/// take-over is applied.
/// Shows I2.
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
                        after = calls::state(&*handle, &key).await.last.get();
                    }
                }
                tokio::task::yield_now().await;
            }
        });
        // In flight before the take-over, so that both compete.
        while calls::state(&*stage.scene.there, &stage.scene.key).await.last.get() < number + 5 {
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

/// Takes over through the other handle, as another process would.
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
    let _seen = calls::state(there, &stage.scene.key).await;
}
