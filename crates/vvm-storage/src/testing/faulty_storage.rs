//! [`FaultyStorage`]: a storage whose next renewal fails or whose `close` hangs.

use super::Layer;
use crate::{
    key::Partition,
    step::{Done, Step},
    sysvvm::SysVvmStorage,
};
use async_trait::async_trait;
use ielections::{ReadError, Slot, WriteError};
use std::{
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// What happens to a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is applied, and its answer is lost.
    LostAnswer,
    /// It is not applied, and never answered.
    Hang,
    /// It is refused: the disk is full.
    Refused,
}

/// A storage that fails on request.
#[derive(Debug)]
pub struct FaultyStorage {
    storage: Arc<dyn SysVvmStorage>,
    next: Mutex<Option<Fault>>,
    hangs_in_close: AtomicBool,
    hides_requests: AtomicBool,
}

impl FaultyStorage {
    /// Wraps `storage`. Nothing fails yet.
    pub fn over(storage: Arc<dyn SysVvmStorage>) -> Arc<Self> {
        let (hangs_in_close, hides_requests) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { storage, next: Mutex::default(), hangs_in_close, hides_requests })
    }

    /// Makes reads of the two partitions of requests fail, which are the last of a scan.
    pub fn hide_requests(&self) {
        self.hides_requests.store(true, Relaxed);
    }

    /// Lets `close` never end.
    pub fn hang_close(&self) {
        self.hangs_in_close.store(true, Relaxed);
    }

    /// Lets the next renewal fail.
    pub fn fail_next(&self, fault: Fault) {
        *lock(&self.next) = Some(fault);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Layer for FaultyStorage {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        let Step::Renew { .. } = step else { return self.storage.commit(at, step).await };
        let fault = lock(&self.next).take();
        match fault {
            None => self.storage.commit(at, step).await,
            Some(Fault::LostAnswer) => {
                self.storage.commit(at, step).await?;
                Err(WriteError::Unknown("the answer is lost".into()))
            }
            Some(Fault::Hang) => pending().await,
            Some(Fault::Refused) => Err(WriteError::NotApplied("the disk is full".into())),
        }
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        if !self.hides_requests.load(Relaxed) {
            return self.storage.peek_some(at, seen).await;
        }
        let slots = at.len().saturating_sub(2);
        self.storage.peek_some(&at[..slots], &mut seen[..slots]).await?;
        Err(ReadError::Unavailable("the partition has no quorum".into()))
    }

    async fn close(&self) {
        if self.hangs_in_close.load(Relaxed) {
            pending::<()>().await;
        }
        self.storage.close().await;
    }
}
