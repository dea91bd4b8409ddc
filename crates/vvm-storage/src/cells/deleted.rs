//! The wait before the cell of a settled name is claimed that was deleted.

use super::{Cell, CellStorage, CellWrite, Cells, Expected, Tag, content::SettingCell, unreadable};
use crate::{Partition, key, sysvvm::unsent};
use ielections::{ReadError, WriteError};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, Span};

/// What one handle has seen of absent cells, and the bounds of TTLs that it knows.
#[derive(Debug)]
pub(super) struct Deletions {
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Since when a cell was absent in every read.
    absent_since: HashMap<Partition, Instant>,
    /// The longest TTL of each name as last read. It only grows.
    longest_ttl: HashMap<Partition, Duration>,
}

/// The record of a settled name is gone.
#[derive(Debug, thiserror::Error)]
#[error(
    "the cell of {at} was deleted from the storage, and its leader may still work: it can be claimed in {}",
    Span(*wait)
)]
pub(super) struct Deleted {
    pub(super) at: Partition,
    pub(super) wait: Duration,
}

impl Deletions {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, seen: Mutex::default() }
    }

    /// Notes that a read showed the cell.
    pub(super) fn exists(&self, at: &Partition) {
        self.lock().absent_since.remove(at);
    }

    /// Notes that a linearizable read showed no cell.
    pub(super) fn is_absent(&self, at: &Partition) {
        // (I5) After the answer, so that the wait is never too short.
        let now = self.clock.now();
        self.lock().absent_since.entry(at.clone()).or_insert(now);
    }

    /// Each change is one insertion or removal, so a panic elsewhere leaves the maps whole.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: CellStorage> Cells<C> {
    pub(super) async fn setting_cell(&self, at: &Partition) -> Result<Option<(SettingCell, Tag)>, ReadError> {
        let Some(Cell { value, tag }) = self.storage.read(at).await? else { return Ok(None) };
        Ok(Some((SettingCell::decode(at, &value).map_err(unreadable)?, tag)))
    }

    /// Stores that records of this name may have `ttl`. Without an effect for a name that is not settled:
    /// whether it is.
    pub(super) async fn allow_ttl(&self, slot: &Partition, ttl: Duration) -> Result<bool, WriteError> {
        let Some(at) = key::setting_of_slot(slot) else { return Ok(false) };
        let is_allowed = |known: Option<&Duration>| known.is_some_and(|longest| ttl <= *longest);
        for _ in 0..super::ATTEMPTS {
            if is_allowed(self.deletions.lock().longest_ttl.get(&at)) {
                return Ok(true);
            }
            let Some((setting, tag)) = self.setting_cell(&at).await.map_err(unsent)? else {
                return Ok(false);
            };
            if !is_allowed(Some(&setting.longest_ttl)) {
                let raised = SettingCell { longest_ttl: ttl, ..setting };
                let written = self.storage.write(&at, raised.encode(&at), Expected::Tag(tag)).await;
                // The claim that follows was not sent, whatever became of this write.
                match written.map_err(|error| WriteError::NotApplied(error.into()))? {
                    CellWrite::Written(_) => {}
                    CellWrite::Refused => continue,
                }
            }
            self.deletions.lock().longest_ttl.insert(at.clone(), ttl);
        }
        Err(WriteError::NotApplied(super::KeepsChanging { at }.into()))
    }

    /// Returns how long the slot's cell, if it is absent, must not be claimed; `None` if it may be.
    ///
    /// (I5) The leader's last renewal was sent before the cell was deleted, so before this handle saw the
    /// absence. Its TTL is within the bound, which is stored before any claim is sent. So after the bound has
    /// passed on this clock, the leader's own deadline has passed, as after the observation of a record.
    pub(super) async fn wait_after_deletion(&self, slot: &Partition) -> Result<Option<Duration>, WriteError> {
        let Some(at) = key::setting_of_slot(slot) else { return Ok(None) };
        let Some((setting, _)) = self.setting_cell(&at).await.map_err(unsent)? else { return Ok(None) };
        let since = self.deletions.lock().absent_since.get(slot).copied();
        let waited = since.map_or(Duration::ZERO, |since| self.deletions.clock.now().since(since));
        Ok(Some(setting.longest_ttl.saturating_sub(waited)).filter(|wait| !wait.is_zero()))
    }
}
