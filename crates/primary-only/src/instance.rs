//! [`Instance`]: a task, and what is known of its course in this term.

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
    /// The document stands, or stood.
    persisted: AtomicBool,
    released: AtomicBool,
    outcome: OnceLock<Outcome>,
    /// Rings when any of the above changes.
    news: Notify,
    /// What finishes a write whose cell is gone.
    left_behind: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl<S: Service> Instance<S> {
    pub(crate) fn new(id: S::Id, task: S::Task, persisted: bool) -> Self {
        Self {
            id,
            task,
            began: AtomicBool::new(false),
            persisted: AtomicBool::new(persisted),
            released: AtomicBool::new(false),
            outcome: OnceLock::new(),
            news: Notify::new(),
            left_behind: Mutex::new(None),
        }
    }

    pub(crate) fn begin(&self) {
        self.began.store(true, Ordering::Release);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    pub(crate) fn persist(&self) {
        self.persisted.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    pub(crate) fn was_persisted(&self) -> bool {
        self.persisted.load(Ordering::Acquire)
    }

    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// Whether its document stands.
    pub(crate) fn stands(&self) -> bool {
        self.was_persisted() && !self.released.load(Ordering::Acquire)
    }

    /// The first outcome stands.
    pub(crate) fn end(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_ok() {
            self.news.notify_waiters();
        }
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// Waits for the end of the run. Resolves on every path: [`Ending`](crate::runner) sees to it.
    pub(crate) async fn ended(&self) -> Outcome {
        self.news_until(|| self.outcome().cloned()).await
    }

    /// Waits until the document stands, or the instance has ended without.
    pub(crate) async fn persisted(&self) -> Result<(), Outcome> {
        self.news_until(|| match self.was_persisted() {
            true => Some(Ok(())),
            false => self.outcome().cloned().map(Err),
        })
        .await
    }

    async fn news_until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Listening begins before looking, or news in between would go unheard.
            news.as_mut().enable();
            if let Some(seen) = look() {
                return seen;
            }
            news.await;
        }
    }

    pub(crate) fn leave_behind(&self, write: BoxFuture<'static, ()>) {
        *self.left_behind.lock().unwrap_or_else(PoisonError::into_inner) = Some(write);
    }

    /// What finishes the write that a cell has left in doubt.
    pub(crate) fn take_left_behind(&self) -> Option<BoxFuture<'static, ()>> {
        self.left_behind.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
