//! Contention: of many writes on one version exactly one applies, and none is lost or applied twice.

use super::{
    StorageUnderTest,
    scene::{Scene, vacant},
    settling::{Settled, of_claim, of_swap, settled, standing},
};
use crate::{Epoch, Slot, TtlStorage, Version};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;
use vvm_clock::SystemClock;

const WRITERS: u8 = 8;
const SWAPS: u64 = 1000;
const TAKE_OVERS: u64 = 50;

/// How long the swaps may take. A cluster whose nodes agree on each swap applies a few dozen a second, if
/// independent writers compete.
const LONGEST_SWAPPING: Duration = Duration::from_secs(30);

/// Handles for the writers: two of them, so that contention is between processes and within one.
async fn handles<S: StorageUnderTest>(storage: &S) -> [Arc<dyn TtlStorage<S::Key>>; 2] {
    [storage.open().await, storage.open().await]
}

/// Of many candidates for one vacancy exactly one gets it.
pub async fn one_of_many_claims_wins(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let handles = handles(storage).await;
    for round in 0..20_u8 {
        let key = storage.key(&[b"round ", &[round][..]].concat());
        let mut candidates = JoinSet::new();
        for author in 1..=WRITERS {
            let (handle, key) = (Arc::clone(&handles[usize::from(author) % 2]), key.clone());
            let entry = scene.entry(author, u64::from(author));
            candidates.spawn(async move {
                loop {
                    let outcome = handle.insert_if_not_exist(&key, vacant(None), &entry).await.map(of_claim);
                    match settled(outcome, &entry, &*handle, &key).await {
                        Settled::Applied => return Some(entry),
                        Settled::Refused(slot) | Settled::Undecided(slot) => match slot.entry() {
                            // An earlier, undecided attempt has applied.
                            Some(winner) if *winner == entry => return Some(entry),
                            Some(_) => return None,
                            None => {}
                        },
                    }
                }
            });
        }
        let winners: Vec<_> = candidates.join_all().await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(standing(&*scene.there, &key).await.entry(), Some(&winners[0]));
    }
}

/// Of many take-overs of one version exactly one applies: epochs rise, and each belongs to one.
pub async fn one_of_many_take_overs_wins_each_epoch(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let handles = handles(storage).await;
    scene.claim(None, &scene.entry(0, 1)).await;
    let mut candidates = JoinSet::new();
    for author in 1..=WRITERS {
        let (handle, key) = (Arc::clone(&handles[usize::from(author) % 2]), scene.key.clone());
        let mut ours = scene.entry(author, 2);
        candidates.spawn(async move {
            let (mut epochs, mut undecided) = (Vec::new(), 0);
            let mut slot = standing(&*handle, &key).await;
            while epochs.len() < TAKE_OVERS as usize {
                let observed = slot.entry().expect("a record, since no writer releases").clone();
                ours.version = ours.version.next();
                ours.epoch = Epoch::new(observed.epoch.get() + 1).unwrap();
                let outcome = handle.take_over(&key, &observed, &ours).await.map(of_claim);
                slot = match settled(outcome, &ours, &*handle, &key).await {
                    Settled::Applied => {
                        epochs.push(ours.epoch.get());
                        Slot::Held { entry: ours.clone(), proven_age: None }
                    }
                    Settled::Refused(slot) => slot,
                    Settled::Undecided(slot) => {
                        undecided += 1;
                        slot
                    }
                };
            }
            (epochs, undecided)
        });
    }
    let (epochs, undecided): (Vec<_>, Vec<u64>) = candidates.join_all().await.into_iter().unzip();
    let mut epochs: Vec<_> = epochs.into_iter().flatten().collect();
    epochs.sort_unstable();
    let given = epochs.len() as u64;
    epochs.dedup();
    assert_eq!(epochs.len() as u64, given, "an epoch was given twice");
    // Epochs are consecutive, so only undecided ones may be missing.
    let last = standing(&*scene.there, &scene.key)
        .await
        .last_epoch()
        .expect("a record, since no writer releases")
        .get();
    assert!(
        (given..=given + undecided.iter().sum::<u64>()).contains(&(last - 1)),
        "{given} given, {last} stands"
    );
}

/// Eight writers swap one record up to a thousand times each: exactly the swaps that were answered so are
/// applied.
pub async fn eight_writers_lose_no_renewal(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let handles = handles(storage).await;
    let first = scene.entry(1, 1);
    scene.claim(None, &first).await;
    // Versions rise in steps of this, and the remainder identifies the writer, so all are different.
    let step = u64::from(WRITERS);
    let end = SystemClock::read().after(LONGEST_SWAPPING);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (handle, key) = (Arc::clone(&handles[usize::from(writer) % 2]), scene.key.clone());
        writers.spawn(async move {
            let (mut swaps, mut undecided) = (0, 0);
            let mut slot = standing(&*handle, &key).await;
            while swaps < SWAPS && SystemClock::read() < end {
                let held = slot.entry().expect("a record, since no writer releases").clone();
                let write = (held.version.write / step + 1) * step + u64::from(writer);
                let ours = held.renewed(Version { write, ..held.version });
                let outcome = handle.compare_and_swap(&key, &held, &ours).await.map(of_swap);
                slot = match settled(outcome, &ours, &*handle, &key).await {
                    Settled::Applied => {
                        swaps += 1;
                        Slot::Held { entry: ours, proven_age: None }
                    }
                    Settled::Refused(slot) => slot,
                    Settled::Undecided(slot) => {
                        undecided += 1;
                        slot
                    }
                };
            }
            (swaps, undecided)
        });
    }
    let (answered, undecided): (Vec<u64>, Vec<u64>) = writers.join_all().await.into_iter().unzip();
    let (answered, undecided): (u64, u64) = (answered.iter().sum(), undecided.iter().sum());
    assert!(answered > 0, "not one swap in {LONGEST_SWAPPING:?}");
    let stand = standing(&*scene.there, &scene.key)
        .await
        .entry()
        .expect("a record, since no writer releases")
        .version
        .write
        / step;
    assert!((answered..=answered + undecided).contains(&stand), "{answered} answered, {stand} stand");
}
