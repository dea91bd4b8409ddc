//! [`Network`]: calls in flight. Dropping the caller does not cancel them.

use super::FaultyStorage;
use crate::{BatchOutcome, Claim, Delete, Entry, Key, ReadError, Slot, Swap, WriteError};
use futures_util::future::{Either, select};
use std::{
    collections::BTreeMap,
    fmt,
    pin::{Pin, pin},
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::Instant;

/// The outcome of a write.
pub(super) trait Outcome: Send + 'static {
    /// Whether the write was applied.
    fn applied(&self) -> bool;
}

impl Outcome for Claim {
    fn applied(&self) -> bool {
        *self == Self::Claimed
    }
}

impl Outcome for Swap {
    fn applied(&self) -> bool {
        *self == Self::Swapped
    }
}

impl Outcome for Delete {
    fn applied(&self) -> bool {
        *self == Self::Deleted
    }
}

impl Outcome for BatchOutcome {
    fn applied(&self) -> bool {
        *self == Self::Written
    }
}

/// How a call in flight ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Landing {
    /// The caller has the answer.
    InTime,
    /// Applied, after the caller was dropped.
    AppliedLate,
    /// Refused or failed, after the caller was dropped.
    RefusedLate,
}

/// A call in flight. Its first poll is its arrival at the storage.
pub(super) type Parcel = Pin<Box<dyn Future<Output = Landing> + Send>>;

/// The calls in flight, in the order of their arrival: by time, then as sent.
#[derive(Default)]
pub(super) struct Network {
    under_way: BTreeMap<(Instant, u64), Parcel>,
    sent: u64,
}

impl Network {
    /// Sends `parcel`. With [`Instant::NEVER`] it does not arrive by itself.
    pub(super) fn send(&mut self, arrives_at: Instant, parcel: Parcel) {
        self.sent += 1;
        self.under_way.insert((arrives_at, self.sent), parcel);
    }

    /// Removes and returns the next call that has arrived by `now`.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Parcel> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.under_way.first_key_value().map(|((at, _), _)| *at).filter(|&at| at != Instant::NEVER)
    }

    /// Removes all calls in flight. A caller that waits sees the sender of its answer dropped.
    pub(super) fn take(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.under_way).into_values().collect()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.under_way.keys()).finish()
    }
}

impl<K: Key> FaultyStorage<K> {
    async fn strike(&self, verb: Verb) -> Option<Fault> {
        self.deliver_due().await;
        let mut state = self.state();
        let fault = state.plan.strike(verb);
        let counts = &mut state.counts;
        *counts.calls.entry(verb).or_default() += 1;
        match fault {
            Some(Fault::NotApplied) => counts.not_applied += 1,
            Some(Fault::Fatal | Fault::Replaced) => counts.fatal += 1,
            Some(Fault::LostRequest) => counts.lost_requests += 1,
            Some(Fault::Late(_) | Fault::HeldBack) if verb.reads() => counts.lost_requests += 1,
            Some(Fault::SlowRequest(_)) => counts.slow_requests += 1,
            Some(Fault::SlowAnswer(_)) => counts.slow_answers += 1,
            Some(Fault::Hang) => counts.hung += 1,
            // Counted when their effect is known.
            Some(Fault::LostAnswer | Fault::Late(_) | Fault::HeldBack) | None => {}
        }
        fault
    }

    /// Sends a write. The future owns all that it needs, because it may outlive this call.
    pub(super) async fn write<T: Outcome>(
        &self,
        verb: Verb,
        write: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> Result<T, WriteError> {
        let Some(fault) = self.strike(verb).await else { return write.await };
        let unknown = || WriteError::Unknown(Injected(fault).into());
        match fault {
            Fault::NotApplied => Err(WriteError::NotApplied(Injected(fault).into())),
            Fault::Fatal => Err(WriteError::Fatal(Injected(fault).into())),
            Fault::Replaced => Err(WriteError::Replaced(Injected(fault).into())),
            Fault::LostRequest => Err(unknown()),
            Fault::LostAnswer => {
                if write.await?.applied() {
                    self.state().counts.lost_answers += 1;
                }
                Err(unknown())
            }
            Fault::SlowAnswer(delay) => {
                let outcome = write.await;
                self.clock.sleep(delay).await;
                outcome
            }
            Fault::Late(delay) => {
                drop(self.send(self.clock.now().after(delay), write));
                Err(unknown())
            }
            Fault::HeldBack => {
                drop(self.send(Instant::NEVER, write));
                Err(unknown())
            }
            Fault::SlowRequest(delay) => {
                let arrives_at = self.clock.now().after(delay);
                let answer = self.send(arrives_at, write);
                // Another call may carry it out first.
                match select(answer, self.clock.sleep_until(arrives_at)).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(((), answer)) => {
                        self.deliver_due().await;
                        answer.await
                    }
                }
                .unwrap_or_else(|_lost| Err(unknown()))
            }
            Fault::Hang => self.send(Instant::NEVER, write).await.unwrap_or_else(|_lost| Err(unknown())),
        }
    }

    /// Sends a write. Dropping its answer does not cancel it.
    fn send<T: Outcome>(
        &self,
        arrives_at: Instant,
        write: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, WriteError>> {
        let (sender, answer) = oneshot::channel();
        let parcel = async move {
            let outcome = write.await;
            let applied = outcome.as_ref().is_ok_and(Outcome::applied);
            match sender.send(outcome) {
                Ok(()) => Landing::InTime,
                Err(_) if applied => Landing::AppliedLate,
                Err(_) => Landing::RefusedLate,
            }
        };
        self.state().network.send(arrives_at, Box::pin(parcel));
        answer
    }

    pub(super) async fn read<T>(
        &self,
        verb: Verb,
        read: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, ReadError> {
        let Some(fault) = self.strike(verb).await else { return read.await };
        let unavailable = || ReadError::Unavailable(Injected(fault).into());
        let read = pin!(read);
        match fault {
            Fault::Fatal => Err(ReadError::Fatal(Injected(fault).into())),
            Fault::Replaced => Err(ReadError::Replaced(Injected(fault).into())),
            Fault::NotApplied | Fault::LostRequest | Fault::Late(_) | Fault::HeldBack => Err(unavailable()),
            Fault::LostAnswer => {
                read.await?;
                self.state().counts.lost_answers += 1;
                Err(unavailable())
            }
            Fault::SlowRequest(delay) => {
                self.clock.sleep(delay).await;
                read.await
            }
            Fault::SlowAnswer(delay) => {
                let answer = read.await;
                self.clock.sleep(delay).await;
                answer
            }
            Fault::Hang => {
                let (word, heard) = oneshot::channel();
                let parcel = async move {
                    // A dropped read has no effect.
                    let _gone = word.send(());
                    Landing::InTime
                };
                self.state().network.send(Instant::NEVER, Box::pin(parcel));
                heard.await.map_err(|_lost| unavailable())?;
                read.await
            }
        }
    }
}

/// A verb of [`TtlStorage`](crate::TtlStorage), or of [`DocumentStorage`](crate::DocumentStorage) beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// `insert_if_not_exist`.
    InsertIfNotExist,
    /// `take_over`.
    TakeOver,
    /// `compare_and_swap`.
    CompareAndSwap,
    /// `compare_and_delete`.
    CompareAndDelete,
    /// `get`.
    Get,
    /// `scan`.
    Scan,
    /// `write_documents`.
    WriteDocuments,
    /// `fence_state`.
    FenceState,
    /// `document`.
    Document,
    /// `scan_documents`.
    ScanDocuments,
}

impl Verb {
    /// Every verb of leader records, in the order of the trait.
    pub const RECORDS: [Self; 6] = [
        Self::InsertIfNotExist,
        Self::TakeOver,
        Self::CompareAndSwap,
        Self::CompareAndDelete,
        Self::Get,
        Self::Scan,
    ];

    /// Every verb of documents, in the order of the trait.
    pub const DOCUMENTS: [Self; 4] =
        [Self::WriteDocuments, Self::FenceState, Self::Document, Self::ScanDocuments];

    /// Whether it is a read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Scan | Self::FenceState | Self::Document | Self::ScanDocuments)
    }
}

/// The fault of a call. Instead of `Unknown` a read fails with `Unavailable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Fails with `NotApplied` and never reaches the storage.
    NotApplied,
    /// Fails with `Fatal` and never reaches the storage.
    Fatal,
    /// Fails with `Replaced` and never reaches the storage.
    Replaced,
    /// Fails with `Unknown` and never reaches the storage.
    LostRequest,
    /// Applied, then fails with `Unknown`.
    LostAnswer,
    /// Arrives after this delay, and is then applied and answered. A write that is dropped meanwhile is
    /// applied, too.
    SlowRequest(Duration),
    /// Applied at once; the answer arrives after this delay.
    SlowAnswer(Duration),
    /// Fails with `Unknown` at once, and is applied after this delay.
    Late(Duration),
    /// Fails with `Unknown` at once, and is applied by [`land_late`](super::FaultyStorage::land_late).
    HeldBack,
    /// Neither answered nor applied before [`land_late`](super::FaultyStorage::land_late).
    Hang,
}

/// The cause in every error of the mock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("injected: {0:?}")]
pub struct Injected(pub Fault);

impl<K: Key> FaultyStorage<K> {
    /// Replaces the record in the slot by `entry`, without faults.
    ///
    /// # Errors
    /// If the storage behind the network fails.
    pub async fn tamper(&self, key: &K, entry: Entry) -> Result<(), WriteError> {
        let mut slot = self.look(key).await?;
        loop {
            let claim = match &slot {
                Slot::Vacant(vacant) => self.storage.insert_if_not_exist(key, *vacant, &entry).await?,
                Slot::Held { entry: standing, .. } => self.storage.take_over(key, standing, &entry).await?,
            };
            match claim {
                Claim::Claimed => break,
                Claim::Refused(standing) => slot = standing,
            }
        }
        self.state().counts.tampered += 1;
        Ok(())
    }

    /// Deletes the record in the slot, without faults. Its epoch stays.
    ///
    /// # Errors
    /// If the storage behind the network fails.
    pub async fn wipe(&self, key: &K) -> Result<(), WriteError> {
        let mut slot = self.look(key).await?;
        while let Some(standing) = slot.entry() {
            match self.storage.compare_and_delete(key, standing.incarnation(), standing.epoch).await? {
                Delete::Deleted => break,
                Delete::Mismatch(standing) => slot = standing,
            }
        }
        self.state().counts.tampered += 1;
        Ok(())
    }

    async fn look(&self, key: &K) -> Result<Slot, WriteError> {
        self.storage.get(key).await.map_err(|error| match error {
            ReadError::Unavailable(cause) => WriteError::NotApplied(cause),
            ReadError::Fatal(cause) => WriteError::Fatal(cause),
            ReadError::Replaced(cause) => WriteError::Replaced(cause),
        })
    }
}
