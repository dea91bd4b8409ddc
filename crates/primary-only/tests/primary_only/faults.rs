//! A storage whose documents fail, or wait, as a test says. Elections on it go well.

use crate::tasks::Change;
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Fence, FenceState,
    Layer, Page, ReadError, Scan, TtlStorage, WriteError,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

#[derive(Debug)]
pub(crate) struct FaultyDocuments {
    storage: Arc<ElectionsTtlStorage>,
    plan: Mutex<Plan>,
    change: Change,
}

#[derive(Debug, Default)]
struct Plan {
    /// `None` passes.
    scans: VecDeque<Option<ReadFault>>,
    every_scan: Option<ReadFault>,
    writes: VecDeque<WriteFault>,
    every_write: Option<WriteFault>,
    written: usize,
    fences_unread: bool,
    scans_held: bool,
    writes_held: bool,
    page: Option<usize>,
    scanned: usize,
}

/// What becomes of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadFault {
    Unavailable,
    Fatal,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteFault {
    NotApplied,
    /// Unknown, and applied.
    AnswerLost,
    /// Unknown, and not applied.
    RequestLost,
}

impl FaultyDocuments {
    pub(crate) fn before(storage: Arc<ElectionsTtlStorage>) -> Self {
        Self { storage, plan: Mutex::default(), change: Change::default() }
    }

    /// The next scans fail.
    pub(crate) fn fail_scans(&self, faults: &[ReadFault]) {
        self.plan.lock().unwrap().scans.extend(faults.iter().copied().map(Some));
    }

    /// The next scans go well, whatever else is planned.
    pub(crate) fn pass_scans(&self, scans: usize) {
        self.plan.lock().unwrap().scans.extend(std::iter::repeat_n(None, scans));
    }

    /// Every scan fails for which nothing else is planned.
    pub(crate) fn fail_every_scan(&self, fault: Option<ReadFault>) {
        self.plan.lock().unwrap().every_scan = fault;
    }

    /// The next writes fail.
    pub(crate) fn fail_writes(&self, faults: &[WriteFault]) {
        self.plan.lock().unwrap().writes.extend(faults);
    }

    /// Every write fails for which nothing else is planned.
    pub(crate) fn fail_every_write(&self, fault: Option<WriteFault>) {
        self.plan.lock().unwrap().every_write = fault;
    }

    /// Until this is taken back, nobody finds out what became of a write.
    pub(crate) fn hide_fences(&self, hidden: bool) {
        self.plan.lock().unwrap().fences_unread = hidden;
    }

    /// How many writes were asked for.
    pub(crate) fn written(&self) -> usize {
        self.plan.lock().unwrap().written
    }

    /// Scans wait until this is taken back.
    pub(crate) fn hold_scans(&self, held: bool) {
        self.plan.lock().unwrap().scans_held = held;
        self.change.happened();
    }

    /// Writes wait until this is taken back.
    pub(crate) fn hold_writes(&self, held: bool) {
        self.plan.lock().unwrap().writes_held = held;
        self.change.happened();
    }

    /// Pages have at most so many documents.
    pub(crate) fn page_size(&self, documents: usize) {
        self.plan.lock().unwrap().page = Some(documents);
    }

    /// How many scans were asked for.
    pub(crate) fn scanned(&self) -> usize {
        self.plan.lock().unwrap().scanned
    }

    /// Waits until so many scans were asked for.
    pub(crate) async fn scans(&self, scans: usize) {
        self.change.until(|| self.scanned() >= scans).await;
    }

    fn documents(&self) -> &dyn DocumentStorage<ElectionKey> {
        self.storage.documents().unwrap()
    }
}

#[async_trait]
impl DocumentStorage<ElectionKey> for FaultyDocuments {
    fn document_limits(&self) -> DocumentLimits {
        self.documents().document_limits()
    }

    async fn write_documents(
        &self,
        key: &ElectionKey,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        self.change.until(|| !self.plan.lock().unwrap().writes_held).await;
        let fault = {
            let mut plan = self.plan.lock().unwrap();
            plan.written += 1;
            plan.writes.pop_front().or(plan.every_write)
        };
        match fault {
            None => self.documents().write_documents(key, fence, batch).await,
            Some(WriteFault::NotApplied) => Err(WriteError::NotApplied("planned".into())),
            Some(WriteFault::RequestLost) => Err(WriteError::Unknown("planned".into())),
            Some(WriteFault::AnswerLost) => {
                self.documents().write_documents(key, fence, batch).await?;
                Err(WriteError::Unknown("planned".into()))
            }
        }
    }

    async fn fence_state(&self, key: &ElectionKey) -> Result<FenceState, ReadError> {
        if self.plan.lock().unwrap().fences_unread {
            return Err(ReadError::Unavailable("planned".into()));
        }
        self.documents().fence_state(key).await
    }

    async fn document(&self, key: &ElectionKey, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.documents().document(key, id).await
    }

    async fn scan_documents(&self, key: &ElectionKey, scan: &Scan) -> Result<Page, ReadError> {
        let (fault, page) = {
            let mut plan = self.plan.lock().unwrap();
            plan.scanned += 1;
            (plan.scans.pop_front().unwrap_or(plan.every_scan), plan.page)
        };
        self.change.happened();
        self.change.until(|| !self.plan.lock().unwrap().scans_held).await;
        match fault {
            None => {
                let scan = Scan { limit: page.unwrap_or(scan.limit), ..scan.clone() };
                self.documents().scan_documents(key, &scan).await
            }
            Some(ReadFault::Unavailable) => Err(ReadError::Unavailable("planned".into())),
            Some(ReadFault::Fatal) => Err(ReadError::Fatal("planned".into())),
        }
    }
}

#[async_trait]
impl Layer<ElectionKey> for FaultyDocuments {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &*self.storage
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<ElectionKey>> {
        Some(self)
    }
}
