//! Contention: of many writes on one version exactly one applies, and none twice. Ages. Keys and holders of any bytes.
#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    claims::{Settled, of_claim, of_swap, settled, standing},
    scene::{Scene, held, next, vacant, vacant_slot},
};
use crate::{Claim, Delete, Entry, Epoch, Holder, Key, Limits, Slot, Swap, TtlStorage, Version};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;
use vvm_clock::{Clock, Instant, SystemClock};

const WRITERS: u8 = 8;
const SWAPS: u64 = 1000;
const TAKE_OVERS: u64 = 50;

/// How long the swaps may take. A cluster that agrees on each applies a few dozen a second of competing writers.
const LONGEST_SWAPPING: Duration = Duration::from_secs(30);

async fn handles<S: StorageUnderTest>(storage: &S) -> [Arc<dyn TtlStorage<S::Key>>; 2] {
    [storage.open().await, storage.open().await]
}

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
                    tokio::task::yield_now().await;
                    let outcome = handle.insert_if_not_exist(&key, vacant(None), &entry).await.map(of_claim);
                    match settled(outcome, &entry, &*handle, &key).await {
                        Settled::Applied => return Some(entry),
                        Settled::Refused(slot) | Settled::Undecided(slot) => match slot.entry() {
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
                tokio::task::yield_now().await;
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

/// Eight writers swap one record up to a thousand times each: exactly the swaps that were answered so are applied.
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
                tokio::task::yield_now().await;
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

/// Short compared to the shortest TTL, 100 ms.
const STEP: Duration = Duration::from_millis(10);

/// A record whose TTL has passed is still read, refuses claims, and can be taken over. Shows I5.
pub async fn a_record_stands_until_a_write_replaces_it(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (entry, intruder) = (scene.entry(1, 1), scene.entry(2, 2));
    scene.claim(None, &entry).await;
    let long_expired = clock.now().after(scene.ttl.get() * 3);
    while clock.now() < long_expired {
        assert_eq!(scene.stands().await, held(&entry));
        for last_epoch in [None, Some(1)] {
            let claim =
                scene.here.insert_if_not_exist(&scene.key, vacant(last_epoch), &intruder).await.unwrap();
            assert_eq!(claim, Claim::Refused(held(&entry)));
        }
        clock.sleep(STEP).await;
    }
    scene.take_over(&entry, &intruder).await;
}

fn age(slot: &Slot) -> Option<Duration> {
    match slot {
        Slot::Held { proven_age, .. } => *proven_age,
        Slot::Vacant(_) => panic!("vacant, but a record was written"),
    }
}

/// Reads through every handle, old and new, for a while: no age exceeds the time since `issued_at`.
async fn ages_are_proven<S: StorageUnderTest>(
    storage: &S,
    scene: &Scene<S::Key>,
    clock: &SystemClock,
    entry: &Entry,
    issued_at: Instant,
) {
    let handles = [scene.here.clone(), scene.there.clone(), storage.open().await];
    for _ in 0..5 {
        for handle in &handles {
            let slots = [
                handle.get(&scene.key).await.unwrap(),
                handle.scan(std::slice::from_ref(&scene.key)).await.unwrap().remove(0),
            ];
            for slot in slots {
                // A stale scan shows another version, with another age.
                let at_most = clock.now().since(issued_at);
                if slot.entry() == Some(entry) {
                    assert!(
                        age(&slot).is_none_or(|age| age <= at_most),
                        "{:?} is proven, {at_most:?} passed since the write was issued",
                        age(&slot),
                    );
                }
            }
        }
        clock.sleep(STEP).await;
    }
    handles[2].close().await;
}

/// The age starts anew with every write: claim, renewal and take-over. Shows I5.
pub async fn a_proven_age_is_never_larger_than_the_time_since_the_write(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (first, taken) = (scene.entry(1, 1), scene.entry(2, 2));
    let renewed = next(&first);

    let issued_at = clock.now();
    scene.claim(None, &first).await;
    ages_are_proven(storage, &scene, &clock, &first, issued_at).await;

    let issued_at = clock.now();
    scene.renew(&first, &renewed).await;
    ages_are_proven(storage, &scene, &clock, &renewed, issued_at).await;

    let issued_at = clock.now();
    scene.take_over(&renewed, &taken).await;
    ages_are_proven(storage, &scene, &clock, &taken, issued_at).await;
}

pub async fn a_refused_write_proves_no_more_age_than_a_read(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (entry, stranger) = (scene.entry(1, 1), scene.entry(2, 2));
    let issued_at = clock.now();
    scene.claim(None, &entry).await;
    for handle in [&scene.here, &scene.there] {
        for slot in refusals(&**handle, &scene.key, &stranger).await {
            let at_most = clock.now().since(issued_at);
            assert_eq!(slot.entry(), Some(&entry));
            assert!(age(&slot).is_none_or(|age| age <= at_most), "{:?} > {at_most:?}", age(&slot));
        }
    }
}

async fn refusals<K: Key>(handle: &dyn TtlStorage<K>, key: &K, stranger: &Entry) -> Vec<Slot> {
    let mut slots = Vec::new();
    if let Claim::Refused(slot) = handle.insert_if_not_exist(key, vacant(None), stranger).await.unwrap() {
        slots.push(slot);
    }
    if let Claim::Refused(slot) = handle.take_over(key, stranger, &next(stranger)).await.unwrap() {
        slots.push(slot);
    }
    if let Swap::Mismatch(slot) = handle.compare_and_swap(key, stranger, &next(stranger)).await.unwrap() {
        slots.push(slot);
    }
    let delete = handle.compare_and_delete(key, stranger.incarnation(), stranger.epoch).await.unwrap();
    if let crate::Delete::Mismatch(slot) = delete {
        slots.push(slot);
    }
    assert_eq!(slots.len(), 4, "a write of a stranger was applied");
    slots
}

/// With every prefix, shorter than [`Limits::LEAST_KEY_BYTES`].
const LONG_NAME: usize = 400;

/// Names that an encoding may confuse: empty, each byte alone, all bytes, prefixes of each other, separators, numbers.
pub(in crate::testing) fn hostile_names() -> Vec<Vec<u8>> {
    let mut names = vec![Vec::new(), (0..=255).collect(), (0..=255).rev().collect()];
    names.extend((0..=255).map(|byte| vec![byte]));
    names.extend(
        ["a", "a\0", "a\0\0", "\0a", "a/b", "a/", "/b", "a:1", "a,1", "a%2Fb", "'; --", "ä", "A"]
            .map(Vec::from),
    );
    names.extend([vec![0, 0, 0, 1], vec![0, 0, 0, 1, 0, 0, 0, 1], vec![0xff; 5], vec![b'x'; LONG_NAME]]);
    names.sort();
    names.dedup();
    names
}

pub async fn keys_of_any_bytes_are_independent(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let keys: Vec<_> = hostile_names().iter().map(|name| storage.key(name)).collect();
    let entries = scene.claim_all(&keys).await;
    for (key, entry) in keys.iter().zip(&entries) {
        assert_eq!(scene.there.get(key).await.unwrap(), held(entry), "{key:?}");
        let delete = scene.here.compare_and_delete(key, entry.incarnation(), entry.epoch).await.unwrap();
        assert_eq!(delete, Delete::Deleted, "{key:?}");
    }
    for (key, entry) in keys.iter().zip(&entries) {
        assert_eq!(scene.there.get(key).await.unwrap(), vacant_slot(Some(entry.epoch.get())), "{key:?}");
    }
}

/// Keys of consecutive lengths are independent, although many are the beginning of others. A storage of
/// nested folders may take the name of one for a folder of another.
pub async fn keys_that_begin_alike_are_independent(storage: &impl StorageUnderTest) {
    /// Every name is the end of this one. A key with the number of its slot after the name is then the
    /// beginning of the key whose name has four bytes more.
    const LONGEST: [[u8; 4]; 64] = [[0, 0, 0, 1]; 64];
    /// So many lengths have a multiple of any part that a name of 255 characters has room for.
    const NAMES: usize = 160;
    let scene = Scene::set(storage).await;
    let keys: Vec<_> = (0..NAMES).map(|cut| storage.key(&LONGEST.as_flattened()[cut..])).collect();
    let entries = scene.claim_all(&keys).await;
    let slots = scene.there.scan(&keys).await.unwrap().into_iter();
    assert!(slots.eq(entries.iter().map(held)));
}

/// Within the limits a key of 64 KiB works as a short one does. Beyond them, every verb refuses for good.
pub async fn a_long_key_is_carried_whole_or_refused_for_good(storage: &impl StorageUnderTest) {
    const LONG: usize = 64 * 1024;
    const ROOM: usize = 256;
    const LONGEST: usize = 64 << 20;
    let scene = Scene::set(storage).await;
    let most = scene.here.limits().max_key_bytes;
    assert!(
        most >= Limits::LEAST_KEY_BYTES,
        "keys of {most} bytes are too short: see Limits::LEAST_KEY_BYTES"
    );
    let mut lengths = vec![LONG];
    if most < LONGEST {
        lengths.extend([most - ROOM, most + 1]);
    }
    for bytes in lengths {
        // Equal except for the last byte: a storage that cuts keys would confuse them.
        let names = [b'a', b'b'].map(|last| [vec![b'x'; bytes - 1], vec![last]].concat());
        for (author, name) in (1_u8..).zip(names) {
            let (key, entry) = (storage.key(&name), scene.entry(author, u64::from(author)));
            if bytes + ROOM <= most {
                carries(&scene, &key, &entry).await;
            } else if bytes > most {
                scene.is_refused(&key, &entry).await;
            }
        }
    }
}

async fn carries<K: crate::Key>(scene: &Scene<K>, key: &K, entry: &Entry) {
    assert_eq!(scene.there.get(key).await.unwrap(), vacant_slot(None));
    let claim = scene.here.insert_if_not_exist(key, vacant(None), entry).await.unwrap();
    assert_eq!(claim, Claim::Claimed);
    let renewed = next(entry);
    assert_eq!(scene.here.compare_and_swap(key, entry, &renewed).await.unwrap(), Swap::Swapped);
    assert_eq!(scene.there.get(key).await.unwrap(), held(&renewed));
}

/// Holders are kept byte for byte: empty, 255 bytes, every character below 256, zero bytes, SQL.
pub async fn holders_of_any_bytes_are_kept(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let below_256: String = ('\0'..='\u{ff}').collect();
    let (low, high) = below_256.split_at(128);
    let holders = [
        String::new(),
        "x".repeat(Holder::MAX_BYTES),
        low.to_owned(),
        high.chars().take(127).collect(),
        "\0".to_owned(),
        "\0after".to_owned(),
        "'; drop table leader; --".to_owned(),
        "host.example:8080 ☃ \u{1F980}".to_owned(),
    ];
    let mut standing = scene.entry(1, 1);
    scene.claim(None, &standing).await;
    for holder in holders {
        let mut renewed = next(&standing);
        renewed.holder = Holder::new(holder).unwrap();
        scene.renew(&standing, &renewed).await;
        assert_eq!(scene.stands().await, held(&renewed));
        standing = renewed;
    }
    assert!(matches!(scene.stands().await, Slot::Held { .. }));
}
