//! [`Looks`]: reads of all slots and of the pause, at an interval.

use ielections::{ReadError, Slot};
use std::{num::NonZeroU32, time::Duration};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_host::operate::StorageInspector;

/// What one look found.
pub(super) struct Found {
    pub(super) slots: Vec<(u32, Slot)>,
    pub(super) paused: Option<Paused>,
}

/// A pause that stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Paused {
    pub(super) by: String,
    /// In Unix time.
    pub(super) since: Duration,
}

/// One look.
pub(super) struct Look {
    pub(super) found: Result<Found, ReadError>,
    /// The slot count, once it is settled.
    pub(super) settled: Option<NonZeroU32>,
    pub(super) at: Instant,
    /// The same moment in Unix time.
    pub(super) wall: Duration,
}

/// A source of looks.
pub(super) struct Looks<'watch>(pub(super) &'watch StorageInspector);

impl Looks<'_> {
    /// Looks at `due`, or at once if that is past.
    pub(super) async fn at(&self, due: Instant, mut settled: Option<NonZeroU32>) -> Look {
        self.0.clock.sleep_until(due).await;
        let found = self.read(&mut settled).await;
        Look { found, settled, at: self.0.clock.now(), wall: SystemWallClock.since_unix_epoch() }
    }

    async fn read(&self, settled: &mut Option<NonZeroU32>) -> Result<Found, ReadError> {
        let StorageInspector { storage, cluster, .. } = self.0;
        if settled.is_none() {
            *settled = storage.slot_count(cluster).await?;
        }
        let keys = self.0.keys_of(*settled);
        let (slots, requests) = storage.scan_with_requests(cluster, &keys).await?;
        let slots = keys.iter().map(|key| key.slot.get().get()).zip(slots).collect();
        let paused = requests.pause.as_ref();
        let paused =
            paused.map(|pause| Paused { by: pause.by().to_owned(), since: pause.since_unix_epoch() });
        Ok(Found { slots, paused })
    }
}
