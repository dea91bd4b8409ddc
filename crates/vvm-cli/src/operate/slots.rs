//! Whether somebody may still work under one of the slots of a name.

use super::{Refusal, StorageInspector};
use ielections::{Entry, Slot, TtlStorage as _};
use std::sync::Arc;
use vvm_clock::{Clock, Instant};
use vvm_storage::ElectionKey;

/// Slots under which somebody may be at work; each goes once it was seen that nobody is.
pub(super) struct Occupied {
    slots: Vec<(ElectionKey, Option<Sight>)>,
    clock: Arc<dyn Clock>,
}

/// A record, and since when it has stood unchanged.
struct Sight {
    entry: Entry,
    since: Instant,
}

impl Occupied {
    /// Any of these may be.
    pub(super) fn perhaps(slots: Vec<ElectionKey>, clock: Arc<dyn Clock>) -> Self {
        Self { slots: slots.into_iter().map(|key| (key, None)).collect(), clock }
    }

    /// Looks at each that is left, linearizably. One that is vacant goes, and so does one whose record has
    /// stood unchanged for its TTL, on our clock, since the answer that first showed it: its leader is dead
    /// (I1), and while the name is paused nobody takes it over.
    ///
    /// # Errors
    /// When the storage fails.
    pub(super) async fn look(&mut self, desk: &StorageInspector) -> Result<(), Refusal> {
        let mut left = Vec::new();
        for (key, sight) in std::mem::take(&mut self.slots) {
            let slot = desk.storage.get(&key).await?;
            let now = self.clock.now();
            let Slot::Held { entry, .. } = slot else { continue };
            let since =
                sight.filter(|sight| sight.entry.is_same_write(&entry)).map_or(now, |sight| sight.since);
            if now < since.after(entry.ttl.get()) {
                left.push((key, Some(Sight { entry, since })));
            }
        }
        self.slots = left;
        Ok(())
    }

    /// Whether nobody works.
    pub(super) fn is_clear(&self) -> bool {
        self.slots.is_empty()
    }

    /// Who holds what, for people.
    pub(super) fn holders(&self) -> String {
        let holders = self.slots.iter().filter_map(|(key, sight)| {
            let entry = &sight.as_ref()?.entry;
            Some(format!("{} holds slot {} (epoch {})", entry.holder, key.slot, entry.epoch))
        });
        holders.collect::<Vec<_>>().join(", ")
    }
}
