//! Says when the storage makes trouble, and when it has stopped to: once for each, however often it is tried meanwhile.
//!
//! A candidate that waits for ever would otherwise wait for ever without a word, on a disk that is full or a server that
//! is gone. What an error means is for the protocol; this only listens, on the way between the two.

use super::control::Control;
use crate::announce::say;
use async_trait::async_trait;
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// How many calls in a row must fail: a single one is what attempts are repeated for.
const TROUBLE: u32 = 2;

/// A storage, and somebody who listens.
pub(super) struct WatchedStorage {
    storage: Arc<ElectionsTtlStorage>,
    name: String,
    control: Arc<Control>,
    heard: Mutex<Heard>,
}

/// What was heard last.
#[derive(Default)]
struct Heard {
    /// Failures in a row.
    reads: u32,
    writes: u32,
    said: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}

impl WatchedStorage {
    /// `storage`, watched for the candidates for `name`.
    pub(super) fn new(storage: Arc<ElectionsTtlStorage>, name: &str, control: Arc<Control>) -> Self {
        Self { storage, name: name.to_owned(), control, heard: Mutex::default() }
    }

    async fn listen<T, E: fmt::Display>(
        &self,
        kind: Kind,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut unanswered = Unanswered(Some((self, kind)));
        let outcome = call.await;
        unanswered.0 = None;
        match &outcome {
            Ok(_) => self.worked(kind),
            Err(error) => self.failed(kind, error),
        }
        outcome
    }

    fn worked(&self, kind: Kind) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard.in_a_row(kind) = 0;
        if heard.said && heard.reads < TROUBLE && heard.writes < TROUBLE {
            heard.said = false;
            say!("{}: the storage works again", self.name);
        }
    }

    fn failed(&self, kind: Kind, error: &dyn fmt::Display) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let in_a_row = heard.in_a_row(kind);
        *in_a_row = in_a_row.saturating_add(1);
        if *in_a_row >= TROUBLE && !heard.said {
            heard.said = true;
            say!("{}: trouble with the storage: {error}; trying again", self.name);
        }
    }
}

impl Heard {
    fn in_a_row(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        }
    }
}

/// A call that is dropped before it is answered has run out of time; or nobody waits any more, because all is to end.
struct Unanswered<'call>(Option<(&'call WatchedStorage, Kind)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((storage, kind)) = self.0.filter(|(storage, _)| !storage.control.stop.is_cancelled()) {
            storage.failed(kind, &"it does not answer");
        }
    }
}

#[async_trait]
impl TtlStorage<ElectionKey> for WatchedStorage {
    fn limits(&self) -> Limits {
        self.storage.limits()
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.listen(Kind::Write, self.storage.insert_if_not_exist(key, vacant, entry)).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.listen(Kind::Write, self.storage.take_over(key, observed, entry)).await
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        self.listen(Kind::Write, self.storage.compare_and_swap(key, held, entry)).await
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.listen(Kind::Write, self.storage.compare_and_delete(key, incarnation, epoch)).await
    }

    async fn get(&self, key: &ElectionKey) -> Result<Slot, ReadError> {
        self.listen(Kind::Read, self.storage.get(key)).await
    }

    async fn scan(&self, keys: &[ElectionKey]) -> Result<Vec<Slot>, ReadError> {
        self.listen(Kind::Read, self.storage.scan(keys)).await
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}

impl fmt::Debug for WatchedStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WatchedStorage({:?})", self.storage)
    }
}
