//! Tests of what `ElectionsTtlStorage` adds to a driver: limits and settings. The suite tests the contract.

use ielections::{Entry, ReadError, Ttl, TtlStorage as _, Vacant, WriteError};
use std::{error::Error, num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::SystemClock;
use vvm_storage::{
    BeyondLimits, ClusterName, ElectionKey, ElectionsTtlStorage, KEY_PREFIX_SLOT_COUNT, Partition,
    SettleError, SlotNumber, Step, SysVvmStorage, mem::MemDatabase,
};

fn key(cluster: ClusterName) -> ElectionKey {
    ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
}

fn entry(ttl: Duration) -> Entry {
    Entry { ttl: Ttl::new(ttl).unwrap(), ..ielections::testing::entry(7, 0, 1) }
}

fn count(slots: u32) -> NonZeroU32 {
    NonZeroU32::new(slots).unwrap()
}

fn storage() -> (Arc<MemDatabase>, ElectionsTtlStorage) {
    let database = MemDatabase::new(Arc::new(SystemClock::start().unwrap()));
    let storage = ElectionsTtlStorage::new(database.open());
    (database, storage)
}

fn beyond(cause: &(dyn Error + 'static)) -> BeyondLimits {
    *cause.downcast_ref().unwrap_or_else(|| panic!("not an error of limits: {cause:?}"))
}

#[tokio::test]
async fn too_long_key_is_refused_by_every_verb() {
    let (_database, storage) = storage();
    let most = storage.limits().max_key_bytes;
    // Prefix and slot number take five bytes.
    let longest = key(ClusterName::new(vec![b'x'; most - 5]));
    let too_long = key(ClusterName::new(vec![b'x'; most - 4]));
    let expected = BeyondLimits::Key { bytes: most + 1, most };
    let entry = entry(Ttl::MIN);

    assert!(storage.get(&longest).await.is_ok());
    let Err(WriteError::Fatal(cause)) =
        storage.insert_if_not_exist(&too_long, Vacant::default(), &entry).await
    else {
        panic!("a key beyond the limits was written");
    };
    assert_eq!(beyond(&*cause), expected);
    assert!(storage.take_over(&too_long, &entry, &entry).await.is_err());
    assert!(storage.compare_and_swap(&too_long, &entry, &entry).await.is_err());
    assert!(storage.compare_and_delete(&too_long, entry.incarnation(), entry.epoch).await.is_err());
    assert!(storage.get(&too_long).await.is_err());
    assert!(storage.scan(&[longest, too_long]).await.is_err());
}

#[tokio::test]
async fn scan_of_more_keys_than_a_batch_keeps_their_order() {
    let (_database, storage) = storage();
    let keys: Vec<_> = SlotNumber::all(count(storage.limits().scan_batch as u32 + 1))
        .map(|slot| ElectionKey { cluster: "many".into(), slot })
        .collect();
    let last = keys.last().unwrap();
    storage.insert_if_not_exist(last, Vacant::default(), &entry(Ttl::MIN)).await.unwrap();
    let slots = storage.scan(&keys).await.unwrap();
    assert_eq!(slots.len(), keys.len());
    assert_eq!(slots.iter().position(|slot| slot.entry().is_some()), Some(keys.len() - 1));
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
