//! A storage that delays or fails calls for documents as a test plans. Calls for leader records always work.

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
    /// `None` succeeds.
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

/// The failure of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadFault {
    Unavailable,
    Fatal,
}

/// The failure of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteFault {
    NotApplied,
    /// The result is unknown, and the write is applied.
    AnswerLost,
    /// The result is unknown, and the write is not applied.
    RequestLost,
}

impl FaultyDocuments {
    pub(crate) fn before(storage: Arc<ElectionsTtlStorage>) -> Self {
        Self { storage, plan: Mutex::default(), change: Change::default() }
    }

    /// Fails the next scans.
    pub(crate) fn fail_scans(&self, faults: &[ReadFault]) {
        self.plan.lock().unwrap().scans.extend(faults.iter().copied().map(Some));
    }

    /// Lets the next scans succeed, before other planned faults.
    pub(crate) fn pass_scans(&self, scans: usize) {
        self.plan.lock().unwrap().scans.extend(std::iter::repeat_n(None, scans));
    }

    /// Fails every scan for which no other fault is planned.
    pub(crate) fn fail_every_scan(&self, fault: Option<ReadFault>) {
        self.plan.lock().unwrap().every_scan = fault;
    }

    /// Fails the next writes.
    pub(crate) fn fail_writes(&self, faults: &[WriteFault]) {
        self.plan.lock().unwrap().writes.extend(faults);
    }

    /// Fails every write for which no other fault is planned.
    pub(crate) fn fail_every_write(&self, fault: Option<WriteFault>) {
        self.plan.lock().unwrap().every_write = fault;
    }

    /// Fails reads of the fence, so that the result of an unknown write stays unknown.
    pub(crate) fn hide_fences(&self, hidden: bool) {
        self.plan.lock().unwrap().fences_unread = hidden;
    }

    /// Returns the number of write calls.
    pub(crate) fn written(&self) -> usize {
        self.plan.lock().unwrap().written
    }

    /// Delays all scans while `held`.
    pub(crate) fn hold_scans(&self, held: bool) {
        self.plan.lock().unwrap().scans_held = held;
        self.change.happened();
    }

    /// Delays all writes while `held`.
    pub(crate) fn hold_writes(&self, held: bool) {
        self.plan.lock().unwrap().writes_held = held;
        self.change.happened();
    }

    /// Limits the documents of a page.
    pub(crate) fn page_size(&self, documents: usize) {
        self.plan.lock().unwrap().page = Some(documents);
    }

    /// Returns the number of scan calls.
    pub(crate) fn scanned(&self) -> usize {
        self.plan.lock().unwrap().scanned
    }

    /// Waits for this number of scan calls.
    pub(crate) async fn wait_for_scans(&self, scans: usize) {
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
