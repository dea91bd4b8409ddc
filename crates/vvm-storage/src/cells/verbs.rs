//! The verbs of slots and settings, each one conditional write on one cell.

use super::{
    ATTEMPTS, CellStorage, CellWrite, Cells, Expected, KeepsChanging, Known,
    content::{Origin, SettingCell, SlotCell},
    placeholder::Deleted,
};
use crate::{
    Description, Opened, Partition, SysVvmDocuments, SysVvmHints, SysVvmStorage, key, sysvvm::unsent,
};
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, Vacant, WriteError,
};
/// How many cells one scan reads at a time.
const READS: usize = 32;

#[async_trait]
impl<C: CellStorage> SysVvmStorage for Cells<C> {
    fn limits(&self) -> Limits {
        let limits = self.storage.limits();
        Limits {
            min_ttl: limits.min_ttl,
            max_key_bytes: limits.max_key_bytes,
            // A holder, twice escaped by JSON at most sixfold, must fit beside a full key.
            max_value_bytes: 1 << 10,
            scan_batch: READS,
        }
    }

    fn shared_between_processes(&self) -> bool {
        self.storage.shared_between_processes()
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        // The write applies to exactly what is known, so no read before it would show anything else.
        let mut known = self.known().remove(&at);
        for _ in 0..ATTEMPTS {
            let known = known.take().filter(|known| known.content.slot.is_as_expected(from));
            let seen = match known {
                Some(known) => known,
                None => self.standing(&at).await.map_err(unsent)?,
            };
            if !seen.content.slot.is_as_expected(from) {
                return Ok(Claim::Refused(seen.content.slot));
            }
            if seen.is_unwritten() {
                return Err(WriteError::NotApplied(Deleted { at }.into()));
            }
            // (I5) Before the claim is sent, so that the TTL of every record is within the bound.
            self.allow_ttl(&at, entry.ttl.get()).await?;
            if self.replace(&at, 0, held(&seen.content, entry), seen.expected).await? {
                return Ok(Claim::Claimed);
            }
        }
        Err(WriteError::NotApplied(KeepsChanging { at }.into()))
    }

    async fn renew(&self, at: Partition, replaced: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let renewed = self.change(&at, 0, |Known { content, .. }| match content.slot.entry() {
            Some(stands) if stands.is_same_write(replaced) => Ok(held(content, entry)),
            _ => Err(content.slot.clone()),
        });
        Ok(renewed.await?.map_or_else(Swap::Mismatch, |()| Swap::Swapped))
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let released = self.change(&at, 0, |Known { content, .. }| match content.slot.entry() {
            Some(stands) if stands.is_of(incarnation, epoch) => {
                // (I2) The epoch and the count of batches survive.
                let slot = Slot::Vacant(Vacant { last_epoch: Some(epoch) });
                Ok(SlotCell { slot, ..content.clone() })
            }
            _ => Err(content.slot.clone()),
        });
        let outcome = released.await?.map_or_else(Delete::Mismatch, |()| Delete::Deleted);
        self.known().remove(&at);
        Ok(outcome)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        Ok(self.standing(&at).await?.content.slot)
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
        let mut reads = stream::iter(reads).buffer_unordered(READS);
        let mut outcome = Ok(());
        while let Some(read) = reads.next().await {
            outcome = outcome.and(read);
        }
        outcome
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        if let Some(stands) = self.setting(at.clone()).await.map_err(unsent)? {
            return Ok(stands);
        }
        // Before the setting, so that a settled name has had all its cells. Not by a handle that has seen
        // records of the name: then the setting was deleted, and what is absent gets a placeholder.
        let was_used = self.placeholders.known_ttl(&at);
        let slots = key::slots_of_setting(&at, value).take_while(|_| was_used.is_none());
        let vacancies = slots.map(async |at| {
            self.storage.write(&at, SlotCell::vacant().encode(&at), Expected::Absent).await.map(drop)
        });
        let vacancies = vacancies.collect::<Vec<_>>();
        let mut vacancies = stream::iter(vacancies).buffer_unordered(READS);
        while let Some(created) = vacancies.next().await {
            created?;
        }
        let setting = SettingCell { value: value.to_vec(), longest_ttl: was_used.unwrap_or_default() };
        match self.storage.write(&at, setting.encode(&at), Expected::Absent).await? {
            CellWrite::Written(_) => Ok(setting.value),
            CellWrite::Refused => {
                let stands = self.setting(at).await.map_err(unsent)?;
                stands.ok_or_else(|| WriteError::NotApplied("the setting was deleted meanwhile".into()))
            }
        }
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.setting_cell(&at).await?.map(|(cell, _)| cell.value))
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        self.storage.hints()
    }

    fn opened(&self) -> Option<Opened> {
        self.storage.opened()
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.storage.describe().await
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}

fn held(content: &SlotCell, entry: &Entry) -> SlotCell {
    let slot = Slot::Held { entry: entry.clone(), proven_age: None };
    SlotCell { slot, documents: content.documents.clone(), origin: Origin::Elections }
}
