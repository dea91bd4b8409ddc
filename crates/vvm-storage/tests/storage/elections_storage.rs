use ielections::{DocumentStorage as _, ReadError, Scan, TtlStorage as _, testing::id};
use std::{num::NonZeroU32, sync::Arc};
use vvm_clock::SystemClock;
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, KEY_PREFIX_SLOT_COUNT, Partition, SettleError, SlotNumber,
    Step, SysVvmStorage,
    mem::MemDatabase,
    testing::{FaultyStorage, Layer as _, Outage},
};

fn count(slots: u32) -> NonZeroU32 {
    NonZeroU32::new(slots).unwrap()
}

fn storage() -> (Arc<MemDatabase>, ElectionsTtlStorage) {
    let database = MemDatabase::new(Arc::new(SystemClock::start().unwrap()));
    let storage = ElectionsTtlStorage::new(database.open());
    (database, storage)
}

#[tokio::test]
async fn first_slot_count_is_kept_and_a_different_one_is_refused() {
    let (_database, storage) = storage();
    let cluster = ClusterName::from("payroll");
    assert_eq!(storage.slot_count(&cluster).await.unwrap(), None);
    storage.settle_slot_count(&cluster, count(3)).await.unwrap();
    storage.settle_slot_count(&cluster, count(3)).await.unwrap();
    let Err(SettleError::Differs { stands, wanted, .. }) =
        storage.settle_slot_count(&cluster, count(5)).await
    else {
        panic!("two slot counts for one cluster");
    };
    assert_eq!((stands, wanted), (count(3), count(5)));
    assert_eq!(storage.slot_count(&cluster).await.unwrap(), Some(count(3)));
    assert_eq!(storage.slot_count(&"another".into()).await.unwrap(), None);
}

#[tokio::test]
async fn faulty_storage_that_is_away_answers_no_read() {
    let (database, _) = storage();
    let faulty = FaultyStorage::over(database.open());
    let storage = ElectionsTtlStorage::new(faulty.clone().into_storage());
    let key = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::FIRST };
    for (outage, answers) in [(Outage::Full, true), (Outage::Away, false)] {
        faulty.set_outage(Some(outage));
        let answered = [
            storage.get(&key).await.is_ok(),
            storage.scan(std::slice::from_ref(&key)).await.is_ok(),
            storage.slot_count(&key.cluster).await.is_ok(),
            storage.fence_state(&key).await.is_ok(),
            storage.document(&key, &id("a")).await.is_ok(),
            storage.scan_documents(&key, &Scan::default()).await.is_ok(),
        ];
        assert_eq!(answered, [answers; 6], "{outage:?}");
    }
}

#[tokio::test]
async fn damaged_slot_count_is_reported_and_not_overwritten() {
    let (database, storage) = storage();
    for damaged in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x01"] {
        let cluster = ClusterName::new([b"payroll", damaged].concat());
        let partition = Partition::from_bytes([&[KEY_PREFIX_SLOT_COUNT], cluster.as_bytes()].concat());
        database.open().commit(partition.clone(), Step::settle(damaged)).await.unwrap();
        assert!(matches!(storage.settle_slot_count(&cluster, count(1)).await, Err(SettleError::Corrupt(_))));
        assert!(matches!(storage.slot_count(&cluster).await, Err(ReadError::Fatal(_))));
        assert_eq!(database.open().setting(partition.clone()).await.unwrap().as_deref(), Some(damaged));
    }
}
