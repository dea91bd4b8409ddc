//! The contract suite tests each sentence of the contract. Random operations find what no sentence mentions: on `mem`, which
//! does what `decide` says, every answer must be that of the contract's own model; on each other driver, that of `mem`.

use fastrand::Rng;
use ielections::{Claim, Delete, Entry, Holder, Slot, Swap, TtlStorage, Vacant, testing::Model};
use std::{num::NonZeroU32, sync::Arc};
use vvm_clock::SystemClock;
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase, testing::without_age};

fn key(draw: &mut Rng) -> ElectionKey {
    let slot = SlotNumber::new(NonZeroU32::new(draw.u32(1..3)).unwrap());
    ElectionKey { cluster: "payroll".into(), slot }
}

fn entry(draw: &mut Rng) -> Entry {
    let (incarnation, write, epoch) = (draw.u8(..2), draw.u64(..2), draw.u64(1..4));
    Entry {
        holder: Holder::new(format!("{incarnation}/{write}/{epoch}")).unwrap(),
        ..ielections::testing::entry(incarnation, write, epoch)
    }
}

/// Carries out the operation that `draw` gives, and returns the slots that its answer shows, without ages, which only
/// drivers have. None if a write was applied. There are few keys, versions and epochs, so that about half of the
/// conditional writes are.
async fn answer(storage: &dyn TtlStorage<ElectionKey>, mut draw: Rng) -> Vec<Slot> {
    let of_claim = |claim| match claim {
        Claim::Claimed => Vec::new(),
        Claim::Refused(slot) => vec![slot],
    };
    let (key, kind) = (key(&mut draw), draw.u8(..18));
    let (one, other) = (entry(&mut draw), entry(&mut draw));
    let shown = match kind {
        0..=3 => {
            let vacant = Vacant { last_epoch: draw.bool().then_some(other.epoch) };
            of_claim(storage.insert_if_not_exist(&key, vacant, &one).await.unwrap())
        }
        4..=7 => of_claim(storage.take_over(&key, &one, &other).await.unwrap()),
        8..=11 => match storage.compare_and_swap(&key, &one, &other).await.unwrap() {
            Swap::Swapped => Vec::new(),
            Swap::Mismatch(slot) => vec![slot],
        },
        12..=14 => match storage.compare_and_delete(&key, one.incarnation(), one.epoch).await.unwrap() {
            Delete::Deleted => Vec::new(),
            Delete::Mismatch(slot) => vec![slot],
        },
        15..=16 => vec![storage.get(&key).await.unwrap()],
        _ => {
            let keys: Vec<_> = (0..draw.usize(..4)).map(|_| self::key(&mut draw)).collect();
            storage.scan(&keys).await.unwrap()
        }
    };
    shown.into_iter().map(without_age).collect()
}

#[tokio::test]
async fn mem_answers_like_the_model() {
    let clock = Arc::new(SystemClock::start().unwrap());
    for seed in 0..1000 {
        let (database, model) = (MemDatabase::new(clock.clone()), Model::<ElectionKey>::new().open());
        let mut storage = ElectionsTtlStorage::new(database.open());
        let mut draw = Rng::with_seed(seed);
        for number in 0..60 {
            if draw.u8(..18) == 0 {
                storage.close().await;
                storage = ElectionsTtlStorage::new(database.open());
            }
            let operation = draw.fork();
            let ours = answer(&storage, operation.clone()).await;
            let expected = answer(&*model, operation).await;
            assert_eq!(ours, expected, "seed {seed}, operation {number}");
        }
    }
}
