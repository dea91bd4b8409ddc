//! Elections and documents on a storage that has one strong operation, compare-and-swap on one value.

pub(crate) mod content;
mod history;
#[cfg(feature = "testing")]
mod memory;
mod placeholder;
mod storage;

#[cfg(feature = "testing")]
pub use content::decodes;
#[cfg(feature = "testing")]
pub use memory::Memory;
pub use storage::{Cell, CellCondition, CellLimits, CellStorage, CellWrite, Tag};

use crate::{
    key::{self, Partition},
    step::{CurrentState, Step, StepOutcome},
    sysvvm::{Description, ListedSetting, OpenedStorage, SysVvmHints, SysVvmStorage, unsent},
};
use async_trait::async_trait;
use content::{DecodeError, Origin, SettingCell, SlotCell};
use futures_util::stream::{self, StreamExt as _};
use history::{HighWaterMarks, Mark};
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, Vacant, WriteError,
};
use placeholder::{DeletedCell, Placeholders};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Elections and documents on a [`CellStorage`]: a slot's record, epoch, count of batches and documents are one value,
/// so every write is one conditional write. A renewal costs one request, and so does a claim: the value that it
/// replaces is known, from the write or the look before it. A claim that is refused reads.
///
/// **An absent cell of a name that was used before is not vacant.** Settling a name creates the cells of all
/// its slots first. So a cell that is absent later was deleted, by hand or by a rule of the bucket, and its
/// leader may still work. The first candidate that sees this writes a *placeholder*: a record that nothing
/// leads, with the longest TTL that a record of the name ever had. Candidates observe it like the record of a
/// dead leader (I5). The leader is lost at its next renewal.
///
/// **A storage that shows an earlier state than before is refused from then on**, with
/// [`Replaced`](ReadError::Replaced): it has lost a write, or accepted two under one condition.
#[derive(Debug)]
pub struct Cells<C> {
    storage: C,
    /// The cells that this handle wrote last, and vacant ones that it saw last: they compose writes, never an answer.
    known: Mutex<HashMap<Partition, CachedCell>>,
    placeholders: Placeholders,
    history: HighWaterMarks,
}

#[derive(Debug, Clone)]
struct CachedCell {
    content: SlotCell,
    expected: CellCondition,
}

impl CachedCell {
    /// Whether the cell that elections wrote is gone. Another program may have made one in its place.
    fn is_lost(&self) -> bool {
        self.expected == CellCondition::Absent || self.content.origin == Origin::Displacing
    }
}

/// How often one call composes a write anew because another part of the cell changed meanwhile: a leader's
/// renewal and its batch, as a rule. More is a storage whose conditions don't hold.
const ATTEMPTS: usize = 8;

const CONCURRENT_READS: usize = 32;

/// Room that documents leave for a record with the longest key and holder.
const RECORD_ROOM: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
#[error("{at} changed during each of {ATTEMPTS} attempts to write it")]
struct KeepsChanging {
    at: Partition,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the documents of {at} would take {bytes} bytes with the record, and this storage takes {most}: keep less"
)]
struct TooLarge {
    at: Partition,
    bytes: usize,
    most: usize,
}

impl<C: CellStorage> Cells<C> {
    /// Elections on `storage`.
    pub fn new(storage: C) -> Self {
        let placeholders = Placeholders::new(true);
        Self { storage, known: Mutex::default(), placeholders, history: HighWaterMarks::default() }
    }

    /// As [`new`](Self::new), for a process that only looks: it shows a placeholder where a candidate would write one.
    pub fn to_look(storage: C) -> Self {
        Self { placeholders: Placeholders::new(false), ..Self::new(storage) }
    }

    /// Replaces the content of a slot by what `step` makes of it, in one conditional write. Content of the cache may
    /// compose it, but a refusal is returned only for content that was just read. Dropped, the write may be applied,
    /// even later, but only to the content that it was made from.
    async fn change(&self, at: &Partition, step: &Step) -> Result<StepOutcome, WriteError> {
        let room = if let Step::Batch { .. } = step { RECORD_ROOM } else { 0 };
        let mut cached = self.known().remove(at);
        for _ in 0..ATTEMPTS {
            let composed =
                cached.take().and_then(|known| Some((known.content.after(step).ok()?, known.expected)));
            let (content, expected) = match composed {
                Some(composed) => composed,
                None => {
                    let known = match step {
                        Step::Claim { .. } => self.read_or_place(at).await,
                        _ => self.read_cell(at).await,
                    };
                    let known = known.map_err(unsent)?;
                    match known.content.after(step) {
                        Err(shown) => return Ok(StepOutcome::Refused(shown)),
                        Ok(_) if known.is_unwritten() => {
                            return Err(WriteError::NotApplied(DeletedCell { at: at.clone() }.into()));
                        }
                        Ok(content) => (content, known.expected),
                    }
                }
            };
            if let Step::Claim { to, .. } = step {
                // (I5) Before the claim is sent, so that the TTL of every record is within the bound.
                self.allow_ttl(at, to.ttl.get()).await?;
            }
            // After a refusal, a read decides whether the condition failed or another part of the cell changed (I7).
            match (self.replace(at, room, content, expected).await, step) {
                (Ok(true), _) => return Ok(StepOutcome::Applied),
                // A leader whose record was deleted must know, because another one may work beside it (I1).
                // A candidate reads again, and finds what stands instead.
                (Ok(false), _) | (Err(WriteError::Replaced(_)), Step::Claim { .. }) => {}
                (Err(error), _) => return Err(error),
            }
        }
        Err(WriteError::NotApplied(KeepsChanging { at: at.clone() }.into()))
    }

    /// Whether the content was replaced. Cancel safety: as [`change`](Self::change).
    async fn replace(
        &self,
        at: &Partition,
        room: usize,
        content: SlotCell,
        expected: CellCondition,
    ) -> Result<bool, WriteError> {
        let value = content.encode(at);
        let (bytes, most) = (value.len(), self.storage.limits().max_cell_bytes.saturating_sub(room));
        if bytes > most {
            return Err(WriteError::Fatal(TooLarge { at: at.clone(), bytes, most }.into()));
        }
        self.history.check().map_err(unsent)?;
        let before = self.history.mark(at);
        match self.storage.write_slot(at, value, content.slot.entry(), expected).await? {
            CellWrite::Written(tag) => {
                self.history.note(at, before, &content).map_err(unsent)?;
                // Without a tag the next write reads first: a tag of another answer could be of other content.
                if let Some(tag) = tag {
                    let known = CachedCell { content, expected: CellCondition::Tag(tag) };
                    self.known().insert(at.clone(), known);
                }
                Ok(true)
            }
            CellWrite::Refused => Ok(false),
        }
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<StepOutcome, WriteError> {
        if let Some(stands) = self.setting(at.clone()).await.map_err(unsent)? {
            return Ok(StepOutcome::Refused(CurrentState::Setting(stands)));
        }
        // Before the setting, so that a settled name has had all its cells. Not by a handle that has seen
        // records of the name: then the setting was deleted, and what is absent gets a placeholder.
        let was_used = self.placeholders.known_ttl(&at);
        let slots = key::slots_of_setting(&at, value).take_while(|_| was_used.is_none());
        let vacancies = slots.map(async |at| {
            self.storage.write(&at, SlotCell::vacant().encode(&at), CellCondition::Absent).await.map(drop)
        });
        let vacancies = vacancies.collect::<Vec<_>>();
        let mut vacancies = stream::iter(vacancies).buffer_unordered(CONCURRENT_READS);
        while let Some(created) = vacancies.next().await {
            created?;
        }
        let setting = SettingCell { value: value.to_vec(), longest_ttl: was_used.unwrap_or_default() };
        match self.storage.write(&at, setting.encode(&at), CellCondition::Absent).await? {
            CellWrite::Written(_) => Ok(StepOutcome::Applied),
            CellWrite::Refused => match self.setting(at).await.map_err(unsent)? {
                Some(stands) => Ok(StepOutcome::Refused(CurrentState::Setting(stands))),
                None => Err(WriteError::NotApplied("the setting was deleted meanwhile".into())),
            },
        }
    }

    async fn look(&self, at: &Partition) -> Result<Slot, ReadError> {
        self.history.check()?;
        let before = self.history.mark(at);
        let Some(Cell { value, tag }) = self.storage.peek(at).await? else {
            // Most pauses and requests were never made, and no leader is lost with one: a leader looks at them each second.
            if before.is_none() && key::setting_of_slot(at).is_none() {
                return Ok(SlotCell::vacant().slot);
            }
            return Ok(self.read_or_place(at).await?.content.slot);
        };
        let content = SlotCell::decode(at, &value).map_err(unreadable)?;
        // A stale look proves nothing, and shows nothing new.
        if before.is_some_and(|known| known.excludes(&Mark::new(&content)))
            || content.origin == Origin::Displacing
        {
            return Ok(self.read_or_place(at).await?.content.slot);
        }
        self.history.note(at, None, &content)?;
        self.note_look(at, &content, &tag);
        Ok(content.slot)
    }

    fn note_look(&self, at: &Partition, content: &SlotCell, tag: &Tag) {
        let mut known = self.known();
        // A leader of this handle needs what it wrote since the look was sent.
        if known.get(at).is_some_and(|known| known.content.slot.entry().is_some()) {
            return;
        }
        if let Some(entry) = content.slot.entry() {
            known.remove(at);
            self.placeholders.saw(at, entry);
        } else {
            known.insert(
                at.clone(),
                CachedCell { content: content.clone(), expected: CellCondition::Tag(tag.clone()) },
            );
        }
    }

    async fn read_cell(&self, at: &Partition) -> Result<CachedCell, ReadError> {
        self.history.check()?;
        let before = self.history.mark(at);
        let Some(Cell { value, tag }) = self.storage.read(at).await? else {
            let slot = Slot::Vacant(Vacant { last_epoch: self.history.epoch(at) });
            let content = SlotCell { slot, ..SlotCell::vacant() };
            return Ok(CachedCell { content, expected: CellCondition::Absent });
        };
        let mut content = SlotCell::decode(at, &value).map_err(unreadable)?;
        if let Some(known) = before.filter(|_| content.origin == Origin::Displacing) {
            let epoch = known.displaced_epoch().map_err(|error| ReadError::Fatal(error.into()))?;
            content = content.raised_to(epoch);
        }
        self.history.note(at, before, &content)?;
        if let Some(entry) = content.slot.entry() {
            self.placeholders.saw(at, entry);
        }
        Ok(CachedCell { content, expected: CellCondition::Tag(tag) })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Partition, CachedCell>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable(damaged: DecodeError) -> ReadError {
    ReadError::Fatal(damaged.into())
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<C: CellStorage> SysVvmStorage for Cells<C> {
    fn limits(&self) -> Limits {
        let limits = self.storage.limits();
        Limits {
            min_ttl: limits.min_ttl,
            max_key_bytes: limits.max_key_bytes,
            // A holder, twice escaped by JSON at most sixfold, must fit beside a full key.
            max_value_bytes: 1 << 10,
            scan_batch: CONCURRENT_READS,
        }
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        match &step {
            Step::Settle { value } => self.settle(at, value).await,
            Step::Release { .. } => {
                let done = self.change(&at, &step).await?;
                self.known().remove(&at);
                Ok(done)
            }
            _ => self.change(&at, &step).await,
        }
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        Ok(self.read_or_place(&at).await?.content.slot)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let mut seen = vec![None; at.len()];
        self.peek_some(at, &mut seen).await?;
        // Without an error, none is missing.
        Ok(seen.into_iter().flatten().collect())
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let reads = at.iter().zip(seen).map(async |(at, seen): (&Partition, &mut Option<Slot>)| {
            *seen = Some(self.look(at).await?);
            Ok(())
        });
        let reads = reads.collect::<Vec<_>>();
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let mut outcome = Ok(());
        while let Some(read) = reads.next().await {
            outcome = outcome.and(read);
        }
        outcome
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.setting_cell(&at).await?.map(|(cell, _)| cell.value))
    }

    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        let listed = self.storage.settings().await?;
        Ok(listed.map(|listed| listed.into_iter().map(|at| (at, None)).collect()))
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        // A quarter of the cell: the rest is for other documents, and for ids in the line of JSON.
        let batch = (self.storage.limits().max_cell_bytes.saturating_sub(RECORD_ROOM)) / 4;
        Some(DocumentLimits {
            max_id_bytes: 1 << 10,
            max_body_bytes: batch.saturating_sub(1 << 10),
            max_batch: 256,
            max_batch_bytes: batch,
            max_page: 1024,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let content = self.read_cell(at).await?.content;
        Ok(FenceState { last: content.documents.last(), slot: content.slot })
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        Ok(self.read_cell(at).await?.content.documents.get(id))
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        Ok(self.read_cell(at).await?.content.documents.scan(scan))
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        self.storage.hints()
    }

    fn opened(&self) -> Option<OpenedStorage> {
        self.storage.opened()
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.storage.describe().await
    }

    /// A cell has no time of the server.
    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        Ok(vec![None; at.len()])
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}
