//! Renewals first: of one leadership's renewals and batches, one at a time is at the storage, and a batch
//! waits for the renewal rather than the other way round. Beside an independent writer one renewal in ten
//! became ambiguous on a cluster that decides each partition's writes one by one; behind one queue, none.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, futures::Notified};

#[derive(Default)]
pub(super) struct Gate {
    at: Mutex<At>,
    /// Rings when one has passed.
    passed: Notify,
}

#[derive(Default)]
struct At {
    /// A renewal waits, or is at the storage.
    renewal: bool,
    /// A step of the writer is at the storage.
    batch: bool,
}

/// One step of the writer at the storage, until it is answered or dropped.
pub(super) struct BatchTurn<'gate>(&'gate Gate);

impl Gate {
    fn at(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no renewal waits or is under way. Renewals are bounded, and so is this (I10).
    pub(super) async fn batch(&self) -> BatchTurn<'_> {
        self.wait(|at| {
            at.batch = !at.renewal;
            at.batch
        })
        .await;
        BatchTurn(self)
    }

    /// From now on no batch begins.
    pub(super) fn begin_renewal(&self) {
        self.at().renewal = true;
    }

    pub(super) fn end_renewal(&self) {
        self.at().renewal = false;
        self.passed.notify_waiters();
    }

    pub(super) fn is_batch_under_way(&self) -> bool {
        self.at().batch
    }

    /// Waits until no batch is at the storage.
    pub(super) async fn batch_passed(&self) {
        self.wait(|at| !at.batch).await;
    }

    async fn wait(&self, mut passes: impl FnMut(&mut At) -> bool) {
        loop {
            let rung: Notified<'_> = self.passed.notified();
            tokio::pin!(rung);
            // Listening begins before looking, or a ring in between would go unheard.
            rung.as_mut().enable();
            if passes(&mut self.at()) {
                return;
            }
            rung.await;
        }
    }
}

impl Drop for BatchTurn<'_> {
    fn drop(&mut self) {
        self.0.at().batch = false;
        self.0.passed.notify_waiters();
    }
}
