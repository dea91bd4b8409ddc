use super::{
    ATTEMPTS, CachedCell, Cell, CellCondition, CellStorage, CellWrite, Cells, KeepsChanging, Tag,
    content::{Origin, SettingCell, SlotCell},
    unreadable,
};
use crate::{
    key::{self, Partition},
    sysvvm::unsent,
};
use ielections::{
    Entropy, Entry, Epoch, Holder, Incarnation, OsEntropy, ReadError, Slot, Ttl, Version, WriteError,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock};

/// The holder of a placeholder. Nothing leads under this name.
const DELETED: &str = "none: the record was deleted, and its leader may still work";

/// Of the placeholder that is shown by a handle that may write none: the same in each look.
const UNWRITTEN: Incarnation = Incarnation::from_bytes([0; 16]);

#[derive(Debug)]
pub(super) struct Placeholders {
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) wall: Arc<dyn WallClock>,
    writes: bool,
    pub(super) ttls: Mutex<HashMap<Partition, LongestTtl>>,
}

/// The longest TTL of the records of a name. It only grows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LongestTtl {
    /// Whether the setting was seen: only a settled name has had all its cells.
    is_settled: bool,
    stored: Duration,
    /// Of the records that this handle saw. It counts if the setting is deleted with the record.
    seen: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the record of {at} was deleted from the storage, its leader may still work, and this process may not \
     write: allow it to"
)]
pub(super) struct DeletedCell {
    pub(super) at: Partition,
}

impl Placeholders {
    pub(super) fn new(writes: bool) -> Self {
        let (entropy, wall) = (Arc::new(OsEntropy::default()), Arc::new(SystemWallClock));
        Self { entropy, wall, writes, ttls: Mutex::default() }
    }

    pub(super) fn saw(&self, slot: &Partition, entry: &Entry) {
        if let Some(setting) = key::setting_of_slot(slot) {
            let mut ttls = lock(&self.ttls);
            let longest = ttls.entry(setting).or_default();
            longest.seen = longest.seen.max(entry.ttl.get());
        }
    }

    fn stored(&self, setting: &Partition, ttl: Duration) {
        let mut ttls = lock(&self.ttls);
        let longest = ttls.entry(setting.clone()).or_default();
        longest.is_settled = true;
        longest.stored = longest.stored.max(ttl);
    }

    /// The longest TTL of a name, if this handle knows that the name was settled.
    pub(super) fn known_ttl(&self, setting: &Partition) -> Option<Duration> {
        let ttls = lock(&self.ttls);
        let longest = ttls.get(setting).filter(|longest| longest.is_settled);
        longest.map(|longest| longest.stored.max(longest.seen))
    }
}

/// Each change is one insertion or assignment, so a panic elsewhere leaves the map whole.
pub(super) fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedCell {
    pub(super) fn is_unwritten(&self) -> bool {
        let is_shown = |entry: &Entry| entry.incarnation() == UNWRITTEN;
        self.content.origin == Origin::Placeholder && self.content.slot.entry().is_some_and(is_shown)
    }
}

impl<C: CellStorage> Cells<C> {
    /// Reads a slot as a candidate must see it; linearizable. An absence has no version, so nothing could be observed:
    /// the first candidate that finds the cell of a used name absent writes a placeholder, only if the cell is still
    /// absent. From then on observation and conditional writes decide, as over the record of a dead leader (I5). Its
    /// epoch exceeds all that this handle knows (I2). Dropped, the placeholder may be written, even later, but only
    /// while the cell is absent.
    pub(super) async fn read_or_place(&self, at: &Partition) -> Result<CachedCell, ReadError> {
        for _ in 0..ATTEMPTS {
            let mut known = self.read_cell(at).await?;
            if !known.is_lost() {
                return Ok(known);
            }
            let Some(ttl) = self.longest_ttl(at).await? else { return Ok(known) };
            if let Slot::Held { entry, .. } = &mut known.content.slot {
                // Another program's, in the place of ours.
                entry.ttl = entry.ttl.max(ttl);
                return Ok(known);
            }
            if self.placeholders.writes {
                let content = self.placeholder(at, &known, ttl).map_err(ReadError::Fatal)?;
                match self.replace(at, 0, content.clone(), known.expected.clone()).await {
                    Ok(true) => {
                        tracing::warn!(record = %at, "the record was deleted: the slot waits for the longest TTL");
                        return Ok(CachedCell { content, expected: known.expected });
                    }
                    Ok(false) | Err(WriteError::Replaced(_)) => continue,
                    Err(WriteError::NotApplied(cause) | WriteError::Unknown(cause)) => {
                        return Err(ReadError::Unavailable(cause));
                    }
                    // A user that may only read. It can't claim either.
                    Err(WriteError::Fatal(cause)) => tracing::debug!(record = %at, %cause, "no placeholder"),
                }
            }
            let last = known.content.slot.last_epoch();
            let epoch =
                Epoch::following(last, Duration::ZERO).map_err(|error| ReadError::Fatal(error.into()))?;
            known.content = known.content.deleted(UNWRITTEN, ttl, epoch).map_err(ReadError::Fatal)?;
            return Ok(known);
        }
        Err(ReadError::Unavailable(KeepsChanging { at: at.clone() }.into()))
    }

    fn placeholder(&self, at: &Partition, known: &CachedCell, ttl: Ttl) -> Result<SlotCell, Cause> {
        let last = known.content.slot.last_epoch().max(self.history.epoch(at));
        let epoch = Epoch::following(last, self.placeholders.wall.since_unix_epoch())?;
        let mut incarnation = [0; 16];
        self.placeholders.entropy.fill(&mut incarnation);
        known.content.deleted(Incarnation::from_bytes(incarnation), ttl, epoch)
    }

    pub(super) async fn setting_cell(&self, at: &Partition) -> Result<Option<(SettingCell, Tag)>, ReadError> {
        self.history.check()?;
        let Some(Cell { value, tag }) = self.storage.read(at).await? else { return Ok(None) };
        let setting = SettingCell::decode(at, &value).map_err(unreadable)?;
        self.placeholders.stored(at, setting.longest_ttl);
        Ok(Some((setting, tag)))
    }

    /// Stores that records of this name may have `ttl`, before one has. Has no effect for a name that is not settled.
    pub(super) async fn allow_ttl(&self, slot: &Partition, ttl: Duration) -> Result<(), WriteError> {
        let Some(at) = key::setting_of_slot(slot) else { return Ok(()) };
        if lock(&self.placeholders.ttls).get(&at).is_some_and(|longest| ttl <= longest.stored) {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            let Some((setting, tag)) = self.setting_cell(&at).await.map_err(unsent)? else { return Ok(()) };
            if ttl <= setting.longest_ttl {
                return Ok(());
            }
            let raised = SettingCell { longest_ttl: ttl, ..setting };
            let written = self.storage.write(&at, raised.encode(&at), CellCondition::Tag(tag)).await;
            // The claim that follows was not sent, whatever became of this write.
            if let CellWrite::Written(_) = written.map_err(|error| WriteError::NotApplied(error.into()))? {
                self.placeholders.stored(&at, ttl);
                return Ok(());
            }
        }
        Err(WriteError::NotApplied(KeepsChanging { at }.into()))
    }

    /// Returns the longest TTL that a record of the slot's name ever had, or the shortest that there is.
    /// `None` if the name was never settled, as far as the storage and this handle know.
    async fn longest_ttl(&self, slot: &Partition) -> Result<Option<Ttl>, ReadError> {
        let Some(at) = key::setting_of_slot(slot) else { return Ok(None) };
        self.setting_cell(&at).await?;
        let longest = self.placeholders.known_ttl(&at).map(|ttl| ttl.clamp(Ttl::MIN, Ttl::MAX));
        longest.map(Ttl::new).transpose().map_err(|error| ReadError::Fatal(error.into()))
    }
}

type Cause = ielections::storage::Cause;

impl SlotCell {
    /// A placeholder in the place of this one, which keeps its documents.
    fn deleted(&self, incarnation: Incarnation, ttl: Ttl, epoch: Epoch) -> Result<Self, Cause> {
        let entry =
            Entry { holder: Holder::new(DELETED)?, version: Version { incarnation, write: 0 }, ttl, epoch };
        let slot = Slot::Held { entry, proven_age: None };
        Ok(Self { slot, documents: self.documents.clone(), origin: Origin::Placeholder })
    }
}
