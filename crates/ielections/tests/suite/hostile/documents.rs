use super::{HostileStorage, RecordWrite, StorageFault::*};
use crate::Name;
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentVersion, DocumentWrite,
    Entry, Epoch, Fence, FenceState, OnlyIf, Page, ReadError, Scan, Slot, TtlStorage, Vacant, WriteError,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::yield_now;

#[derive(Debug, Default)]
pub(super) struct Documents {
    keys: BTreeSet<Name>,
    deleted: BTreeMap<DocumentId, Document>,
    first_versions: BTreeMap<DocumentId, DocumentVersion>,
    /// Written, and not yet shown.
    hidden: BTreeSet<DocumentId>,
    writers: BTreeMap<Name, Epoch>,
    largest: DocumentVersion,
    /// How many documents came before the page that begins after this one.
    positions: BTreeMap<DocumentId, usize>,
}

impl HostileStorage {
    pub(super) async fn documents_after(&self, key: &Name, write: &RecordWrite) {
        if self.fault == RenewalCountsAsABatch && matches!(write, RecordWrite::Renewal(..)) {
            self.force_batch(key, &[]).await;
        }
    }

    async fn force_batch(&self, key: &Name, batch: &[DocumentWrite]) {
        let state = self.good.fence_state(key).await.unwrap();
        if let Some(entry) = state.slot.entry() {
            let _outcome = self.good.write_documents(key, &fence_of(entry, state.last), batch).await;
        }
    }

    fn answered_wrongly(
        &self,
        state: &FenceState,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Option<BatchOutcome> {
        let is_beyond_limits = self.good.document_limits().check(batch).is_err();
        let is_counted_on = state.last == fence.after;
        let is_released = state.slot == Slot::Vacant(Vacant { last_epoch: Some(fence.epoch) });
        let is_renewed = state.slot.entry().is_some_and(|entry| entry.version.write > 0);
        let is_put_again = |write: &DocumentWrite| {
            write.only_if() == OnlyIf::Absent
                && self.shared.memory().documents.deleted.contains_key(write.id())
        };
        let written = match self.fault {
            LosesBatches => true,
            IgnoresLimitsOfBatches => is_beyond_limits,
            EmptyBatchCountsNothing => batch.is_empty() && state.admits(fence),
            FenceOutlivesTheRelease => is_counted_on && is_released,
            FenceComparesTheCountAlone => is_counted_on && state.slot.entry().is_none(),
            _ => false,
        };
        let refused = match self.fault {
            FenceNeedsTheFirstVersion => is_renewed,
            DeletedIsNotAbsent => batch.iter().any(is_put_again),
            _ => false,
        };
        if written { Some(BatchOutcome::Written) } else { refused.then_some(BatchOutcome::Refused) }
    }

    fn compared(&self, state: &FenceState, fence: &Fence) -> Fence {
        let Some(entry) = state.slot.entry() else { return *fence };
        match self.fault {
            FenceIgnoresTheEpoch => Fence { epoch: entry.epoch, ..*fence },
            FenceIgnoresTheIncarnation => Fence { incarnation: entry.incarnation(), ..*fence },
            FenceComparesTheCountAlone => fence_of(entry, fence.after),
            FenceIgnoresTheCount => Fence { after: state.last, ..*fence },
            FenceTakesAnOlderCount => Fence { after: fence.after.max(state.last), ..*fence },
            FenceTakesANewerCount => Fence { after: fence.after.min(state.last), ..*fence },
            _ => *fence,
        }
    }

    /// The write that this fault stores. `version` is that of its document.
    fn stored(
        &self,
        write: &DocumentWrite,
        is_last: bool,
        version: Option<DocumentVersion>,
    ) -> DocumentWrite {
        let is_put = matches!(write, DocumentWrite::Put { .. });
        let asks_for_none = write.only_if() == OnlyIf::Version(DocumentVersion::NONE);
        let is_unconditional = match self.fault {
            IgnoresConditionsOfPuts => is_put,
            IgnoresConditionsOfDeletes => !is_put,
            IgnoresTheLastCondition => is_last,
            MissingHasVersionZero => asks_for_none && version.is_none(),
            _ => false,
        };
        let limits = self.good.document_limits();
        let mut id = write.id().as_bytes();
        match self.fault {
            EndsAnIdAtZero if id[0] != 0 => id = id.split(|byte| *byte == 0).next().unwrap(),
            CutsIds => id = &id[..id.len().min(limits.max_id_bytes - 1)],
            _ => {}
        }
        let id = DocumentId::new(id.to_vec()).unwrap();
        let only_if = if is_unconditional { OnlyIf::Always } else { write.only_if() };
        let DocumentWrite::Put { body, .. } = write else { return DocumentWrite::Delete { id, only_if } };
        let length = match self.fault {
            EndsABodyAtZero => body.iter().position(|byte| *byte == 0).unwrap_or(body.len()),
            CutsBodies => body.len().min(limits.max_body_bytes - 1),
            _ => body.len(),
        };
        DocumentWrite::Put { id, body: body.slice(..length), only_if }
    }

    async fn after_batch(
        &self,
        key: &Name,
        entry: &Entry,
        version: DocumentVersion,
        batch: &[DocumentWrite],
    ) {
        let rest: BTreeSet<_> = batch.iter().skip(1).map(|write| write.id().clone()).collect();
        {
            let memory = &mut self.shared.memory().documents;
            memory.largest = memory.largest.max(version);
            memory.keys.insert(key.clone());
            memory.writers.insert(key.clone(), entry.epoch);
            for write in batch {
                let document = Document { id: write.id().clone(), version, body: Default::default() };
                memory.first_versions.entry(document.id.clone()).or_insert(version);
                match write {
                    DocumentWrite::Put { id, .. } => memory.deleted.remove(id),
                    DocumentWrite::Delete { id, .. } => memory.deleted.insert(id.clone(), document),
                };
            }
        }
        match self.fault {
            BatchRenewsTheRecord => {
                let renewed = entry.renewed(entry.version.next());
                self.good.compare_and_swap(key, entry, &renewed).await.unwrap();
            }
            WritesABatchInTwoSteps => {
                self.shared.memory().documents.hidden.extend(rest.clone());
                yield_now().await;
                self.shared.memory().documents.hidden.retain(|id| !rest.contains(id));
            }
            _ => {}
        }
    }

    async fn shown_document(&self, key: &Name, document: Document) -> Result<Option<Document>, ReadError> {
        let state = self.good.fence_state(key).await?;
        let memory = &self.shared.memory().documents;
        let is_hidden = match self.fault {
            EmptyBodyIsNoDocument => document.body.is_empty(),
            ReadsABatchBehind => document.version == state.last,
            ReleaseHidesDocuments => state.slot.entry().is_none(),
            WritesABatchInTwoSteps => memory.hidden.contains(&document.id),
            _ => false,
        };
        let first = memory.first_versions.get(&document.id).filter(|_| self.fault == DocumentKeepsItsVersion);
        let version = *first.unwrap_or(&document.version);
        Ok((!is_hidden).then_some(Document { version, ..document }))
    }

    async fn page_from_index(&self, key: &Name, scan: &Scan) -> Result<Page, ReadError> {
        let mut whole = Scan { after: None, limit: usize::MAX, ..scan.clone() };
        let mut all = Vec::new();
        loop {
            let page = self.good.scan_documents(key, &whole).await?;
            all.extend(page.documents);
            let Some(next) = page.next else { break };
            whole.after = Some(next);
        }
        let positions = &mut self.shared.memory().documents.positions;
        let begin = scan.after.as_ref().and_then(|after| positions.get(after)).copied().unwrap_or(0);
        let end = all.len().min(begin + scan.limit.clamp(1, self.good.document_limits().max_page));
        let documents = all.get(begin..end).unwrap_or_default().to_vec();
        let next = documents.last().map(|last| last.id.clone()).filter(|_| end < all.len());
        positions.extend(next.clone().map(|next| (next, end)));
        Ok(Page { documents, next })
    }
}

fn fence_of(entry: &Entry, after: DocumentVersion) -> Fence {
    Fence { epoch: entry.epoch, incarnation: entry.incarnation(), after }
}

#[async_trait]
impl DocumentStorage<Name> for HostileStorage {
    fn document_limits(&self) -> DocumentLimits {
        self.good.document_limits()
    }

    async fn write_documents(
        &self,
        key: &Name,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let key = &self.key(key);
        // A closed handle refuses the batch itself.
        let Ok(mut state) = self.good.fence_state(key).await else {
            return self.good.write_documents(key, fence, batch).await;
        };
        if self.fault == LimitOfBatchesIsLess && batch.len() == self.document_limits().max_batch {
            return Err(WriteError::Fatal("the limit is one less".into()));
        }
        if let Some(outcome) = self.answered_wrongly(&state, fence, batch) {
            return Ok(outcome);
        }
        let (mut fence, mut stored) = (self.compared(&state, fence), Vec::new());
        for (at, write) in batch.iter().enumerate() {
            let document = self.good.document(key, write.id()).await;
            let version = document.ok().flatten().map(|document| document.version);
            stored.push(self.stored(write, at + 1 == batch.len(), version));
        }
        if self.fault == ChecksBeforeItWritesABatch && state.admits(&fence) {
            yield_now().await;
            state = self.good.fence_state(key).await.unwrap();
            fence = state.slot.entry().map_or(fence, |entry| fence_of(entry, state.last));
        }
        let outcome = self.good.write_documents(key, &fence, &stored).await?;
        match (outcome, state.slot.entry()) {
            (BatchOutcome::Written, Some(entry)) => {
                self.after_batch(key, entry, fence.after.next(), batch).await
            }
            (BatchOutcome::Refused, _) if self.fault == AnswersARefusedBatchAsWritten => {
                return Ok(BatchOutcome::Written);
            }
            (BatchOutcome::Refused, _) if self.fault == RefusedBatchCounts => {
                self.force_batch(key, &[]).await
            }
            _ => {}
        }
        Ok(outcome)
    }

    async fn fence_state(&self, key: &Name) -> Result<FenceState, ReadError> {
        let key = &self.key(key);
        let mut state = self.good.fence_state(key).await?;
        let memory = &self.shared.memory().documents;
        let writes_now = state.slot.entry().map(|entry| entry.epoch);
        match self.fault {
            SlotsShareOneCount => state.last = memory.largest,
            CountStartsAnew if memory.writers.get(key).copied() != writes_now => {
                state.last = DocumentVersion::NONE;
            }
            _ => {}
        }
        Ok(state)
    }

    async fn document(&self, key: &Name, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let key = &self.key(key);
        match self.good.document(key, id).await? {
            Some(document) => self.shown_document(key, document).await,
            None => Ok(None),
        }
    }

    async fn scan_documents(&self, key: &Name, scan: &Scan) -> Result<Page, ReadError> {
        let key = &self.key(key);
        let mut page = match self.fault {
            PageBeginsAtAnIndex => self.page_from_index(key, scan).await?,
            PageOfZeroIsEmpty if scan.limit == 0 => Page { documents: Vec::new(), next: None },
            _ => self.good.scan_documents(key, scan).await?,
        };
        let is_end_of_prefix = [&scan.prefix[..], &[0xff]].concat();
        let documents = &mut page.documents;
        match self.fault {
            ScanEndsAtPrefixAnd255 if !scan.prefix.is_empty() => {
                documents.retain(|document| document.id.as_bytes() < &is_end_of_prefix[..]);
            }
            ScanBeginsWithTheOneBefore => {
                if let Some(after) = &scan.after {
                    documents.splice(..0, self.good.document(key, after).await?);
                }
            }
            ScanSkipsOneBetweenPages if scan.after.is_some() && !documents.is_empty() => {
                _ = documents.remove(0)
            }
            PageIsUnsorted => documents.reverse(),
            ScanShowsDeletedDocuments => {
                documents.extend(self.shared.memory().documents.deleted.values().cloned());
            }
            ScanShowsLongerKeys => {
                let keys = self.shared.memory().documents.keys.clone();
                for other in keys.iter().filter(|other| *other != key && other.0.starts_with(&key.0)) {
                    documents.extend(self.good.scan_documents(other, scan).await?.documents);
                }
            }
            ScanEndsWithItsFirstPage => page.next = None,
            _ => {}
        }
        let mut shown = Vec::new();
        for document in page.documents {
            shown.extend(self.shown_document(key, document).await?);
        }
        Ok(Page { documents: shown, next: page.next })
    }
}
