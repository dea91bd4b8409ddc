//! [`Instance`]: a task and its state in this term.

use crate::{Outcome, Service};
use futures_util::future::BoxFuture;
use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

pub(crate) struct Instance<S: Service> {
    pub(crate) id: S::Id,
    pub(crate) task: S::Task,
    began: AtomicBool,
    /// The document was written at least once.
    persisted: AtomicBool,
    deleted: AtomicBool,
    outcome: OnceLock<Outcome>,
    /// Notified when `persisted` or `outcome` changes.
    changed: Notify,
    /// Finishes the write whose cell was dropped.
    unfinished: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl<S: Service> Instance<S> {
    pub(crate) fn new(id: S::Id, task: S::Task, persisted: bool) -> Self {
        Self {
            id,
            task,
            began: AtomicBool::new(false),
            persisted: AtomicBool::new(persisted),
            deleted: AtomicBool::new(false),
            outcome: OnceLock::new(),
            changed: Notify::new(),
            unfinished: Mutex::new(None),
        }
    }

    pub(crate) fn begin(&self) {
        self.began.store(true, Ordering::Release);
    }

    /// Returns whether its run has begun and not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.outcome().is_none() && self.began.load(Ordering::Acquire)
    }

    pub(crate) fn persist(&self) {
        self.persisted.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn was_persisted(&self) -> bool {
        self.persisted.load(Ordering::Acquire)
    }

    pub(crate) fn delete(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Returns whether its document exists.
    pub(crate) fn has_document(&self) -> bool {
        self.was_persisted() && !self.deleted.load(Ordering::Acquire)
    }

    /// Sets the outcome, unless it is set already.
    pub(crate) fn end(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_ok() {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// Waits until the instance has ended. Every path sets an outcome.
    pub(crate) async fn ended(&self) -> Outcome {
        self.until(|| self.outcome().cloned()).await
    }

    /// Waits until the document exists, or the instance has ended without one.
    pub(crate) async fn persisted(&self) -> Result<(), Outcome> {
        self.until(|| match self.was_persisted() {
            true => Some(Ok(())),
            false => self.outcome().cloned().map(Err),
        })
        .await
    }

    async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change in between is missed.
            changed.as_mut().enable();
            if let Some(seen) = look() {
                return seen;
            }
            changed.await;
        }
    }

    pub(crate) fn set_unfinished(&self, write: BoxFuture<'static, ()>) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = Some(write);
    }

    /// Takes the future that finishes the write of a dropped cell.
    pub(crate) fn take_unfinished(&self) -> Option<BoxFuture<'static, ()>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
