//! Says when the storage makes trouble, and when it has stopped to: once for each, however often it is tried meanwhile.
//!
//! A candidate that waits for ever would otherwise wait for ever without a word, on a disk that is full or a server that
//! is gone. What an error means is for the protocol; this only listens, on the way between the two, and tells the situation
//! what it has heard.

use crate::{
    announce::say_to_people,
    situation::{Call, Failure, Situation},
};
use async_trait::async_trait;
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Layer, ReadError, Slot, Swap, TtlStorage, Vacant, Version,
    WriteError,
};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;
use vvm_clock::Instant;
use vvm_storage::ElectionKey;

/// How many calls in a row must fail: a single one is what attempts are repeated for.
const TROUBLE: u32 = 2;

/// A storage, and somebody who listens.
pub(crate) struct WatchedStorage {
    storage: Arc<dyn TtlStorage<ElectionKey>>,
    situation: Arc<Situation>,
    /// Cancelled when all is to end.
    stop: CancellationToken,
    heard: Mutex<Heard>,
}

/// What was heard last.
#[derive(Default)]
struct Heard {
    /// Failures in a row.
    reads: u32,
    writes: u32,
    said: bool,
    /// The last renewal of which nobody knows what became, and when it was sent.
    in_doubt: Option<(Version, Instant)>,
}

impl WatchedStorage {
    /// `storage`, watched for a candidate whose situation this is, until `stop`.
    pub(crate) fn new(
        storage: Arc<dyn TtlStorage<ElectionKey>>,
        situation: Arc<Situation>,
        stop: CancellationToken,
    ) -> Self {
        Self { storage, situation, stop, heard: Mutex::default() }
    }

    async fn listen<T, E: fmt::Display>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E>
    where
        for<'e> Failure: From<&'e E>,
    {
        let mut unanswered = Unanswered(Some((self, call)));
        let outcome = answer.await;
        unanswered.0 = None;
        match &outcome {
            Ok(_) => self.worked(call),
            Err(error) => self.failed(call, Failure::from(error), error),
        }
        outcome
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worked(&self, call: Call) {
        self.situation.storage_answered();
        let mut heard = self.heard();
        *heard.in_a_row(call) = 0;
        if heard.said && heard.reads < TROUBLE && heard.writes < TROUBLE {
            heard.said = false;
            say_to_people!("{}: the storage works again", self.name());
            tracing::info!(target: "vvm", event = "storage_works_again", name = self.name());
        }
    }

    fn failed(&self, call: Call, failure: Failure, error: &dyn fmt::Display) {
        self.situation.storage_failed(call, failure, error);
        let mut heard = self.heard();
        let in_a_row = heard.in_a_row(call);
        *in_a_row = in_a_row.saturating_add(1);
        if *in_a_row >= TROUBLE && !heard.said {
            heard.said = true;
            say_to_people!("{}: trouble with the storage: {error}; trying again", self.name());
            let (call, failure) = (call.word(), failure.word());
            tracing::warn!(target: "vvm", event = "storage_trouble", name = self.name(), call, failure, reason = %error);
        }
    }

    fn name(&self) -> &str {
        &self.situation.candidate().name
    }

    /// What stands in a slot, for people.
    fn saw(&self, key: &ElectionKey, found: &Slot) {
        self.situation.saw(key.slot.get().get(), found);
    }

    /// A renewal that was sent then is confirmed now.
    fn renewed(&self, sent_at: Instant) {
        self.situation.renewed(sent_at);
    }

    /// A renewal whose answer got lost may be found to stand after all.
    fn settle_doubt(&self, found: &Slot) {
        let mut heard = self.heard();
        let settled = heard
            .in_doubt
            .take_if(|(version, _)| found.entry().is_some_and(|entry| entry.version == *version));
        if let Some((_, sent_at)) = settled {
            self.renewed(sent_at);
        }
    }
}

impl Heard {
    fn in_a_row(&mut self, call: Call) -> &mut u32 {
        match call {
            Call::Read => &mut self.reads,
            Call::Write => &mut self.writes,
        }
    }
}

/// A call that is dropped before it is answered has run out of time; or nobody waits any more, because all is to end.
struct Unanswered<'call>(Option<(&'call WatchedStorage, Call)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((storage, call)) = self.0.filter(|(storage, _)| !storage.stop.is_cancelled()) {
            storage.failed(call, Failure::NoAnswer, &"it does not answer");
        }
    }
}

#[async_trait]
impl Layer<ElectionKey> for WatchedStorage {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &*self.storage
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let outcome = self.listen(Call::Write, self.storage.insert_if_not_exist(key, vacant, entry)).await;
        if let Ok(Claim::Refused(found)) = &outcome {
            self.saw(key, found);
        }
        outcome
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let outcome = self.listen(Call::Write, self.storage.take_over(key, observed, entry)).await;
        match &outcome {
            Ok(Claim::Claimed) => self.situation.telemetry().took_over(),
            Ok(Claim::Refused(found)) => self.saw(key, found),
            Err(_) => {}
        }
        outcome
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        let sent_at = self.situation.now();
        // Until it is answered: nobody may ever hear the answer.
        self.heard().in_doubt = Some((entry.version, sent_at));
        let outcome = self.listen(Call::Write, self.storage.compare_and_swap(key, held, entry)).await;
        match &outcome {
            Ok(Swap::Swapped) => {
                self.heard().in_doubt = None;
                self.renewed(sent_at);
            }
            Ok(Swap::Mismatch(found)) => {
                self.settle_doubt(found);
                self.saw(key, found);
            }
            Err(_) => {}
        }
        outcome
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.listen(Call::Write, self.storage.compare_and_delete(key, incarnation, epoch)).await
    }

    async fn get(&self, key: &ElectionKey) -> Result<Slot, ReadError> {
        let found = self.listen(Call::Read, self.storage.get(key)).await?;
        self.settle_doubt(&found);
        self.saw(key, &found);
        Ok(found)
    }

    async fn scan(&self, keys: &[ElectionKey]) -> Result<Vec<Slot>, ReadError> {
        let slots = self.listen(Call::Read, self.storage.scan(keys)).await?;
        for (key, found) in keys.iter().zip(&slots) {
            self.saw(key, found);
        }
        Ok(slots)
    }
}

impl fmt::Debug for WatchedStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WatchedStorage({})", self.name())
    }
}
