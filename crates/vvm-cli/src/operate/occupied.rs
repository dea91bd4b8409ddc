//! [`Occupied`]: the slots of a name in which a leader may still work.

use crate::liveness::{Liveness, Observation};
use ielections::{ReadError, TtlStorage};
use vvm_clock::Clock;
use vvm_storage::ElectionKey;

/// Slots in which a leader may still work.
pub(super) struct Occupied(Vec<(ElectionKey, Observation)>);

impl Occupied {
    /// Starts with all of `slots`.
    pub(super) fn new(slots: Vec<ElectionKey>) -> Self {
        Self(slots.into_iter().map(|key| (key, Observation::default())).collect())
    }

    /// Reads each slot that is left, and drops those that are free or stale. The leader of a stale record is
    /// dead (I1), and no candidate takes it over while the name is paused.
    ///
    /// # Errors
    /// When the storage fails. Slots that were not read are kept.
    pub(super) async fn look(
        &mut self,
        storage: &dyn TtlStorage<ElectionKey>,
        clock: &dyn Clock,
    ) -> Result<(), ReadError> {
        let mut place = 0;
        while let Some((key, observation)) = self.0.get_mut(place) {
            let slot = storage.get(key).await?;
            match observation.add(&slot, clock.now()) {
                Liveness::Free | Liveness::Stale => drop(self.0.swap_remove(place)),
                Liveness::Led | Liveness::Unknown => place += 1,
            }
        }
        Ok(())
    }

    /// Returns whether no leader works.
    pub(super) fn is_clear(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the leaders that were seen, for people.
    pub(super) fn leaders(&self) -> String {
        let leaders = self.0.iter().filter_map(|(key, observation)| {
            let entry = observation.record()?;
            Some(format!("{} leads slot {} (epoch {})", entry.holder, key.slot, entry.epoch))
        });
        let leaders = leaders.collect::<Vec<_>>();
        if leaders.is_empty() { "the storage does not answer".into() } else { leaders.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Layer, Slot, Vacant};
    use std::{
        num::NonZeroU32,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };
    use vvm_clock::SystemClock;
    use vvm_storage::{ClusterName, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

    /// Fails the first read.
    #[derive(Debug)]
    struct FailsOnce {
        storage: ElectionsTtlStorage,
        failed: AtomicBool,
    }

    #[async_trait::async_trait]
    impl Layer<ElectionKey> for FailsOnce {
        fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
            &self.storage
        }

        async fn get(&self, key: &ElectionKey) -> Result<Slot, ReadError> {
            if !self.failed.swap(true, Ordering::Relaxed) {
                return Err(ReadError::Unavailable("not now".into()));
            }
            self.storage.get(key).await
        }
    }

    #[tokio::test]
    async fn slot_that_could_not_be_read_stays_occupied() {
        let clock = Arc::new(SystemClock::start().unwrap());
        let storage = ElectionsTtlStorage::new(MemDatabase::new(clock.clone()).open());
        let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::new(NonZeroU32::MIN) };
        assert_eq!(storage.get(&key).await.unwrap(), Slot::Vacant(Vacant::default()));
        let storage = Arc::new(FailsOnce { storage, failed: AtomicBool::new(false) }).into_storage();
        let mut occupied = Occupied::new(vec![key]);
        occupied.look(&*storage, &*clock).await.unwrap_err();
        assert!(!occupied.is_clear());
        occupied.look(&*storage, &*clock).await.unwrap();
        assert!(occupied.is_clear());
    }
}
