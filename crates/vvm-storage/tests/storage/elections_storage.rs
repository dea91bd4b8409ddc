use ielections::ReadError;
use std::{num::NonZeroU32, sync::Arc};
use vvm_clock::SystemClock;
use vvm_storage::{
    ClusterName, ElectionsTtlStorage, KEY_PREFIX_SLOT_COUNT, Partition, SettleError, Step, SysVvmStorage,
    mem::MemDatabase,
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
