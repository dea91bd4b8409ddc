//! A storage for tests, whose next renewal fails or whose `close` hangs. It keeps the stack of the last
//! renewal.

use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError};
use std::{
    backtrace::Backtrace,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use vvm_storage::{Partition, SysVvmStorage};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is applied, and its answer is lost.
    LostAnswer,
    /// It is not applied, and never answered.
    Hang,
    /// It is refused: the disk is full.
    Refused,
}

#[derive(Debug)]
pub(crate) struct FaultyStorage {
    storage: Arc<dyn SysVvmStorage>,
    next: Mutex<Option<Fault>>,
    stack: Mutex<String>,
    hangs_in_close: AtomicBool,
    hides_requests: AtomicBool,
}

impl FaultyStorage {
    pub(crate) fn over(storage: Arc<dyn SysVvmStorage>) -> Arc<Self> {
        Arc::new(Self {
            storage,
            next: Mutex::default(),
            stack: Mutex::default(),
            hangs_in_close: AtomicBool::new(false),
            hides_requests: AtomicBool::new(false),
        })
    }

    /// Makes reads of the two partitions of requests fail.
    pub(crate) fn hide_requests(&self) {
        self.hides_requests.store(true, Ordering::Relaxed);
    }

    /// Lets `close` never end.
    pub(crate) fn hang_close(&self) {
        self.hangs_in_close.store(true, Ordering::Relaxed);
    }

    /// Returns the stack of the last renewal's first poll.
    pub(crate) fn stack(&self) -> String {
        self.stack.lock().unwrap().clone()
    }

    pub(crate) fn fail_next(&self, fault: Fault) {
        *self.next.lock().unwrap() = Some(fault);
    }
}

#[async_trait]
impl SysVvmStorage for FaultyStorage {
    fn limits(&self) -> Limits {
        self.storage.limits()
    }

    fn shared_between_processes(&self) -> bool {
        self.storage.shared_between_processes()
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        self.storage.claim(at, from, entry).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        *self.stack.lock().unwrap() = Backtrace::force_capture().to_string();
        let fault = self.next.lock().unwrap().take();
        match fault {
            None => self.storage.renew(at, held, entry).await,
            Some(Fault::LostAnswer) => {
                self.storage.renew(at, held, entry).await?;
                Err(WriteError::Unknown("the answer is lost".into()))
            }
            Some(Fault::Hang) => pending().await,
            Some(Fault::Refused) => Err(WriteError::NotApplied("the disk is full".into())),
        }
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.storage.release(at, incarnation, epoch).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.storage.read(at).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        if self.hides_requests.load(Ordering::Relaxed) && at.len() == 2 {
            return Err(ReadError::Unavailable("the partition has no quorum".into()));
        }
        self.storage.peek(at).await
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        self.storage.settle(at, value).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.storage.setting(at).await
    }

    async fn close(&self) {
        if self.hangs_in_close.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        self.storage.close().await;
    }
}
