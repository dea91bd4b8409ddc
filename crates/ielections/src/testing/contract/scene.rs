use super::StorageUnderTest;
use crate::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, Key, ReadError, Slot, Swap, Ttl, TtlStorage, Vacant,
    Version, WriteError,
};
use std::sync::Arc;

pub(in crate::testing) struct Scene<K> {
    pub(in crate::testing) here: Arc<dyn TtlStorage<K>>,
    pub(in crate::testing) there: Arc<dyn TtlStorage<K>>,
    pub(in crate::testing) key: K,
    pub(in crate::testing) ttl: Ttl,
}

impl<K: Key> Scene<K> {
    pub(in crate::testing) async fn set<S: StorageUnderTest<Key = K>>(storage: &S) -> Self {
        let (here, there) = (storage.open().await, storage.open().await);
        let ttl = Ttl::new(here.limits().min_ttl.max(Ttl::MIN)).unwrap();
        Self { here, there, key: storage.key(b"key"), ttl }
    }

    pub(in crate::testing) fn entry(&self, author: u8, epoch: u64) -> Entry {
        Entry {
            holder: Holder::new(format!("author {author}")).unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([author; 16]), write: 0 },
            ttl: self.ttl,
            epoch: Epoch::new(epoch).unwrap(),
        }
    }

    /// Claims the slot, which must be vacant with `last_epoch`.
    pub(in crate::testing) async fn claim(&self, last_epoch: Option<u64>, entry: &Entry) {
        let claim = self.here.insert_if_not_exist(&self.key, vacant(last_epoch), entry).await.unwrap();
        assert_eq!(claim, Claim::Claimed, "a claim of a slot vacant since {last_epoch:?}");
    }

    /// Claims the slots of these keys, which were never led. Returns the records, all different.
    pub(in crate::testing) async fn claim_all(&self, keys: &[K]) -> Vec<Entry> {
        let entries: Vec<_> =
            (1..=keys.len()).map(|number| self.entry(number as u8, number as u64)).collect();
        for (key, entry) in keys.iter().zip(&entries) {
            let claim = self.here.insert_if_not_exist(key, vacant(None), entry).await.unwrap();
            assert_eq!(claim, Claim::Claimed, "{key:?} met a key before it");
        }
        entries
    }

    pub(in crate::testing) async fn both_show(&self, expected: Slot, when: &str) {
        for handle in [&self.there, &self.here] {
            assert_eq!(handle.get(&self.key).await.unwrap(), expected, "{when}");
        }
    }

    pub(in crate::testing) async fn renew(&self, held: &Entry, entry: &Entry) {
        let swap = self.here.compare_and_swap(&self.key, held, entry).await.unwrap();
        assert_eq!(swap, Swap::Swapped, "a renewal of the current version");
    }

    pub(in crate::testing) async fn take_over(&self, observed: &Entry, entry: &Entry) {
        let claim = self.here.take_over(&self.key, observed, entry).await.unwrap();
        assert_eq!(claim, Claim::Claimed, "a take-over of the current version");
    }

    pub(in crate::testing) async fn release(&self, entry: &Entry) {
        let delete = self.here.compare_and_delete(&self.key, entry.incarnation(), entry.epoch).await.unwrap();
        assert_eq!(delete, Delete::Deleted, "a release of the current record");
    }

    pub(in crate::testing) async fn is_refused(&self, key: &K, entry: &Entry) {
        let claim = self.here.insert_if_not_exist(key, vacant(None), entry).await;
        assert!(matches!(claim, Err(WriteError::Fatal(_))), "claim: {claim:?}");
        let claim = self.here.take_over(key, entry, entry).await;
        assert!(matches!(claim, Err(WriteError::Fatal(_))), "take-over: {claim:?}");
        let swap = self.here.compare_and_swap(key, entry, &next(entry)).await;
        assert!(matches!(swap, Err(WriteError::Fatal(_))), "renewal: {swap:?}");
        let delete = self.here.compare_and_delete(key, entry.incarnation(), entry.epoch).await;
        assert!(matches!(delete, Err(WriteError::Fatal(_))), "release: {delete:?}");
        let get = self.here.get(key).await;
        assert!(matches!(get, Err(ReadError::Fatal(_))), "read: {get:?}");
        let scan = self.here.scan(std::slice::from_ref(key)).await;
        assert!(matches!(scan, Err(ReadError::Fatal(_))), "scan: {scan:?}");
        let scan = self.here.scan_some(std::slice::from_ref(key), &mut [None]).await;
        assert!(matches!(scan, Err(ReadError::Fatal(_))), "scan of some: {scan:?}");
    }

    pub(in crate::testing) async fn stands(&self) -> Slot {
        self.there.get(&self.key).await.unwrap()
    }
}

pub(in crate::testing) fn next(entry: &Entry) -> Entry {
    entry.renewed(entry.version.next())
}

/// Records that differ from the one after `first` in one part, with the name of that part.
pub(in crate::testing) fn others_than_next(first: &Entry) -> [(&'static str, Entry); 4] {
    let standing = next(first);
    let incarnation = Incarnation::from_bytes([3; 16]);
    [
        ("the version before", first.clone()),
        ("the version after", next(&standing)),
        (
            "the same write of another incarnation",
            standing.renewed(Version { incarnation, ..standing.version }),
        ),
        ("another epoch", Entry { epoch: Epoch::new(first.epoch.get() + 1).unwrap(), ..standing }),
    ]
}

pub(in crate::testing) fn vacant(last_epoch: Option<u64>) -> Vacant {
    Vacant { last_epoch: last_epoch.map(|epoch| Epoch::new(epoch).unwrap()) }
}

pub(in crate::testing) fn vacant_slot(last_epoch: Option<u64>) -> Slot {
    Slot::Vacant(vacant(last_epoch))
}

pub(in crate::testing) fn held(entry: &Entry) -> Slot {
    Slot::Held { entry: entry.clone(), proven_age: None }
}
