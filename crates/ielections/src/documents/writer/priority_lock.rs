//! [`PriorityLock`]: one call of a leadership at a time on its partition, renewals first.
//!
//! On a cluster that decides the writes of a partition one by one, every tenth renewal became ambiguous
//! beside an independent writer of documents; behind one queue, none did.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct PriorityLock {
    state: Mutex<State>,
    /// Notified when a renewal or batch has ended.
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// A renewal waits or is in flight.
    renewal: bool,
    /// A step of the writer is in flight.
    batch: bool,
}

/// One step of the writer, until it is answered or dropped.
pub(super) struct BatchGuard<'lock>(&'lock PriorityLock);

impl PriorityLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no renewal waits or is in flight. Renewals are bounded, and so is this (I10).
    pub(super) async fn lock_for_batch(&self) -> BatchGuard<'_> {
        self.wait(|state| {
            state.batch = !state.renewal;
            state.batch
        })
        .await;
        BatchGuard(self)
    }

    /// From now on no batch begins.
    pub(super) fn begin_renewal(&self) {
        self.state().renewal = true;
    }

    pub(super) fn end_renewal(&self) {
        self.state().renewal = false;
        self.ended.notify_waiters();
    }

    pub(super) fn is_batch_in_flight(&self) -> bool {
        self.state().batch
    }

    /// Waits until no batch is in flight.
    pub(super) async fn batch_answered(&self) {
        self.wait(|state| !state.batch).await;
    }

    async fn wait(&self, mut condition: impl FnMut(&mut State) -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the condition is evaluated, or an end in between would be missed.
            ended.as_mut().enable();
            if condition(&mut self.state()) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        self.0.state().batch = false;
        self.0.ended.notify_waiters();
    }
}
