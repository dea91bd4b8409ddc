//! Driver `sled` beyond the contract: when an age is proven.
#![cfg(feature = "sled")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::time::Duration;
use tempfile::TempDir;
use vvm_storage::{Done, Partition, Step, SysVvmStorage, sled::SledStorage};

fn age(slot: Slot) -> Option<Duration> {
    match slot {
        Slot::Held { proven_age, .. } => proven_age,
        Slot::Vacant(_) => panic!("vacant, but a record was written"),
    }
}

#[tokio::test]
async fn age_is_proven_until_the_last_handle_is_closed() {
    let folder = TempDir::new().unwrap();
    let partition = Partition::from_bytes(*b"key");
    let entry = Entry {
        holder: Holder::new("leader").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(1).unwrap(),
    };
    let first = SledStorage::open(folder.path()).await.unwrap();
    let second = SledStorage::open(folder.path()).await.unwrap();
    let vacant = Slot::Vacant(Vacant { last_epoch: None });
    assert_eq!(first.commit(partition.clone(), Step::claim(&vacant, &entry)).await.unwrap(), Done::Applied);
    first.close().await;
    assert!(age(second.read(partition.clone()).await.unwrap()).is_some(), "a handle was open all the time");

    second.close().await;
    let third = SledStorage::open(folder.path()).await.unwrap();
    let slot = third.read(partition.clone()).await.unwrap();
    assert_eq!(slot.entry(), Some(&entry));
    assert_eq!(age(slot), None, "all handles were closed in between");
}
