//! Drivers beyond the suites: random operations and descriptions.
//!
//! The contract suite tests each sentence of the contract. Random operations find what no sentence mentions:
//! on `mem`, which does what `decide` says, every answer must be that of the contract's own model; on each
//! other driver, that of `mem`.

use ielections::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, ReadError, Slot, Swap, TtlStorage, Vacant,
    testing::Model,
};
use proptest::{collection::vec, option, prelude::*};
use std::{num::NonZeroU32, sync::Arc};
use vvm_storage::{
    ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage,
    testing::{compare_steps, without_age},
};

#[derive(Clone, Debug)]
enum Operation {
    Insert { key: u32, last_epoch: Option<u64>, entry: Entry },
    TakeOver { key: u32, observed: Entry, entry: Entry },
    Swap { key: u32, held: Entry, entry: Entry },
    Delete { key: u32, incarnation: u8, epoch: u64 },
    Get { key: u32 },
    Scan { keys: Vec<u32> },
    Reopen,
}

fn entries() -> impl Strategy<Value = Entry> {
    (0..2_u8, 0..2_u64, 1..4_u64).prop_map(|(incarnation, write, epoch)| Entry {
        holder: Holder::new(format!("{incarnation}/{write}/{epoch}")).unwrap(),
        ..ielections::testing::entry(incarnation, write, epoch)
    })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let key = 1..3_u32;
    vec(
        prop_oneof![
            4 => (key.clone(), option::of(1..4_u64), entries())
                .prop_map(|(key, last_epoch, entry)| Operation::Insert { key, last_epoch, entry }),
            4 => (key.clone(), entries(), entries())
                .prop_map(|(key, observed, entry)| Operation::TakeOver { key, observed, entry }),
            4 => (key.clone(), entries(), entries())
                .prop_map(|(key, held, entry)| Operation::Swap { key, held, entry }),
            3 => (key.clone(), 0..2_u8, 1..4_u64)
                .prop_map(|(key, incarnation, epoch)| Operation::Delete { key, incarnation, epoch }),
            2 => key.clone().prop_map(|key| Operation::Get { key }),
            1 => vec(key, 0..4).prop_map(|keys| Operation::Scan { keys }),
            1 => Just(Operation::Reopen),
        ],
        1..60,
    )
}

/// The answer to an operation, without ages, which only drivers have.
#[derive(PartialEq, Debug)]
enum Answer {
    Claim(Claim),
    Swap(Swap),
    Delete(Delete),
    Slots(Vec<Slot>),
}

fn key(number: u32) -> ElectionKey {
    ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::new(number).unwrap()) }
}

async fn answer(storage: &dyn TtlStorage<ElectionKey>, operation: &Operation) -> Answer {
    match operation {
        Operation::Insert { key: number, last_epoch, entry } => {
            let vacant = Vacant { last_epoch: last_epoch.map(|epoch| Epoch::new(epoch).unwrap()) };
            Answer::Claim(claim_without_age(
                storage.insert_if_not_exist(&key(*number), vacant, entry).await.unwrap(),
            ))
        }
        Operation::TakeOver { key: number, observed, entry } => {
            Answer::Claim(claim_without_age(storage.take_over(&key(*number), observed, entry).await.unwrap()))
        }
        Operation::Swap { key: number, held, entry } => {
            Answer::Swap(match storage.compare_and_swap(&key(*number), held, entry).await.unwrap() {
                Swap::Swapped => Swap::Swapped,
                Swap::Mismatch(slot) => Swap::Mismatch(without_age(slot)),
            })
        }
        Operation::Delete { key: number, incarnation, epoch } => {
            let (incarnation, epoch) =
                (Incarnation::from_bytes([*incarnation; 16]), Epoch::new(*epoch).unwrap());
            Answer::Delete(
                match storage.compare_and_delete(&key(*number), incarnation, epoch).await.unwrap() {
                    Delete::Deleted => Delete::Deleted,
                    Delete::Mismatch(slot) => Delete::Mismatch(without_age(slot)),
                },
            )
        }
        Operation::Get { key: number } => {
            Answer::Slots(vec![without_age(storage.get(&key(*number)).await.unwrap())])
        }
        Operation::Scan { keys } => {
            let keys: Vec<_> = keys.iter().copied().map(key).collect();
            Answer::Slots(storage.scan(&keys).await.unwrap().into_iter().map(without_age).collect())
        }
        Operation::Reopen => Answer::Slots(Vec::new()),
    }
}

fn claim_without_age(claim: Claim) -> Claim {
    match claim {
        Claim::Claimed => Claim::Claimed,
        Claim::Refused(slot) => Claim::Refused(without_age(slot)),
    }
}

/// Runs the operations on the driver and on the model, and compares the answers. There are few keys, versions
/// and epochs, so that about half of the conditional writes succeed.
fn compare(operations: &[Operation], open: impl AsyncFn() -> ElectionsTtlStorage) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let model: Arc<dyn TtlStorage<ElectionKey>> = Model::new().open();
        let mut storage = open().await;
        for (step, operation) in operations.iter().enumerate() {
            if matches!(operation, Operation::Reopen) {
                storage.close().await;
                storage = open().await;
            }
            let (ours, expected) = (answer(&storage, operation).await, answer(&*model, operation).await);
            assert_eq!(ours, expected, "step {step}: {operation:?}");
        }
        storage.close().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn mem_answers_like_the_model(operations in operations()) {
        let database = vvm_storage::mem::MemDatabase::new(Arc::new(vvm_clock::SystemClock::start().unwrap()));
        compare(&operations, async || ElectionsTtlStorage::new(database.open()));
    }
}

mod sqlite {
    use super::*;
    use vvm_storage::sqlite::{OpenOptions, SqliteStorage};

    #[tokio::test]
    async fn random_steps_do_what_decide_says() {
        for seed in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("elections.db");
            let open = async || {
                let options = OpenOptions::new().allow_overlay();
                Arc::new(SqliteStorage::open(&path, options).await.unwrap()) as Arc<dyn SysVvmStorage>
            };
            compare_steps(open, "payroll", seed, 60).await;
        }
    }

    #[tokio::test]
    async fn description_has_library_journal_syncs_and_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let storage =
            SqliteStorage::open(&folder.path().join("leader.db"), OpenOptions::new().allow_overlay())
                .await
                .unwrap();
        let described = storage.describe().await.unwrap();
        assert_eq!(described.software, Some(format!("SQLite {}", rusqlite::version())));
        assert_eq!(described.setting("journal mode"), Some("wal"));
        assert_eq!(described.setting("synchronous"), Some("full"));
        let file_system = described.setting("file system").unwrap();
        // A file in memory, on overlayfs or below /tmp is a concern. Tests may run there, or elsewhere on a disk.
        let is_durable = !["tmpfs", "ramfs", "overlayfs"].contains(&file_system);
        let is_shared = !["/tmp", "/var/tmp"].iter().any(|temporary| folder.path().starts_with(temporary));
        assert_eq!(described.concerns.is_empty(), is_durable && is_shared, "{described:?}");
        storage.close().await;
        assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
    }
}
