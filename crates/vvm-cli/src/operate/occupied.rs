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
                Liveness::Led | Liveness::Held => place += 1,
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
    use ielections::testing::mock::{Fault, FaultyStorage, Verb};
    use std::{num::NonZeroU32, sync::Arc};
    use vvm_clock::SystemClock;
    use vvm_storage::{ClusterName, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

    #[tokio::test]
    async fn slot_that_could_not_be_read_stays_occupied() {
        let clock = Arc::new(SystemClock::start().unwrap());
        let beneath = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(clock.clone()).open()));
        let storage = FaultyStorage::new(beneath, clock.clone());
        let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::new(NonZeroU32::MIN) };
        storage.fail_next(Verb::Get, Fault::NotApplied);
        let mut occupied = Occupied::new(vec![key]);
        occupied.look(&storage, &*clock).await.unwrap_err();
        assert!(!occupied.is_clear());
        occupied.look(&storage, &*clock).await.unwrap();
        assert!(occupied.is_clear());
    }
}
