//! What a handle has seen and written: a storage that shows an earlier state is refused from then on. A server that
//! loses an acknowledged write, or accepts two under one condition, then shows a state from before one that this handle
//! knows. No leadership is safe on it. An absent record proves nothing: people delete records, too.

use super::content::{Origin, SlotCell};
use crate::key::{Partition, setting_of_slot};
use ielections::{DocumentVersion, Epoch, ReadError, Version, record::EpochOutOfRange};
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

#[derive(Default, Debug)]
pub(super) struct HighWaterMarks {
    pub(super) marks: Mutex<HashMap<Partition, Mark>>,
    pub(super) unfit: OnceLock<CellWentBack>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    epoch: Option<Epoch>,
    /// `None` after a release.
    version: Option<Version>,
    batches: DocumentVersion,
    /// Another program writes the cell: only its epoch can be compared.
    is_foreign: bool,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "this server is unfit for elections: {at} was at {known} before and is at {found} now. It lost a write, \
     accepted two under one condition, or was restored from a backup. Stop all candidates; then use another \
     server, or a version of it that obeys conditions (`vvm doctor` tries it)"
)]
pub(super) struct CellWentBack {
    at: Partition,
    known: Mark,
    found: Mark,
}

impl Mark {
    pub(super) fn new(content: &SlotCell) -> Self {
        Self {
            epoch: content.slot.last_epoch(),
            version: content.slot.entry().map(|entry| entry.version),
            batches: content.documents.last(),
            is_foreign: matches!(content.origin, Origin::Foreign | Origin::Displacing),
        }
    }

    /// Of another program's record in the place of a known one: after ours (I2), and the same in each look (I5).
    pub(super) fn displaced_epoch(&self) -> Result<Option<Epoch>, EpochOutOfRange> {
        if self.is_foreign { Ok(self.epoch) } else { Epoch::following(self.epoch, Duration::ZERO).map(Some) }
    }

    pub(super) fn excludes(&self, found: &Self) -> bool {
        if self.epoch != found.epoch {
            // Batches are not compared: a placeholder has a larger epoch, and no batches.
            return found.epoch < self.epoch;
        }
        if self.is_foreign || found.is_foreign {
            return false;
        }
        let went_back = match (self.version, found.version) {
            // An epoch is claimed once, and released once.
            (Some(known), Some(found)) => known.incarnation != found.incarnation || found.write < known.write,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        went_back || found.batches < self.batches
    }
}

impl HighWaterMarks {
    pub(super) fn check(&self) -> Result<(), ReadError> {
        match self.unfit.get() {
            None => Ok(()),
            Some(unfit) => Err(ReadError::Replaced(unfit.clone().into())),
        }
    }

    pub(super) fn mark(&self, at: &Partition) -> Option<Mark> {
        self.lock().get(at).copied()
    }

    pub(super) fn epoch(&self, at: &Partition) -> Option<Epoch> {
        self.mark(at)?.epoch
    }

    /// Notes a state that was shown or written, by a call sent when `before` was known. Fails if it is earlier.
    pub(super) fn note(
        &self,
        at: &Partition,
        before: Option<Mark>,
        content: &SlotCell,
    ) -> Result<(), ReadError> {
        let found = Mark::new(content);
        // A request fences nothing. One that was deleted by hand and made anew may have an earlier epoch.
        let fences = setting_of_slot(at).is_some();
        if let Some(known) = before.filter(|known| fences && known.excludes(&found)) {
            let unfit = self.unfit.get_or_init(|| CellWentBack { at: at.clone(), known, found });
            tracing::error!("{unfit}");
            return self.check();
        }
        let mut marks = self.lock();
        // Another call of this handle may know more by now.
        if marks.get(at).is_none_or(|known| before == Some(*known) || !known.excludes(&found)) {
            marks.insert(at.clone(), found);
        }
        Ok(())
    }

    /// Ignores poison, because each change is one insertion.
    fn lock(&self) -> MutexGuard<'_, HashMap<Partition, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            None => out.write_str("no epoch")?,
            Some(epoch) => write!(out, "epoch {epoch}")?,
        }
        match self.version {
            None => out.write_str(", vacant")?,
            Some(Version { incarnation, write }) => {
                write!(out, ", incarnation {incarnation}, write {write}")?
            }
        }
        write!(out, ", batch {}", self.batches)
    }
}
