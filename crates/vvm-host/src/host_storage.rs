//! [`HostStorage`]: the one layer between a host's campaigns and the storage. Scans also read operators' requests,
//! which may refuse claims. Every answer goes to the host's status. A release wakes this machine's other candidates.

use crate::{
    left_behind::{LeftBehind, OnClaim},
    local_wakeups::LocalWakeups,
    status::{Call, FailureKind, HostStatus, NO_ANSWER},
};
use async_trait::async_trait;
use ielections::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Standing, Swap,
    Terms, Ttl, TtlStorage, Vacant, WriteError,
};
use parking_lot::Mutex;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vvm_clock::Instant;
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, OperatorRequests, RequestExpiry, SlotNumber, Stage,
    StepDown,
};

pub(crate) struct HostStorage {
    /// What is beneath. The protocol and [`HostStorage::look_at_requests`] go through this layer.
    pub(crate) storage: Arc<ElectionsTtlStorage>,
    pub(crate) cluster: ClusterName,
    requests: watch::Sender<OperatorRequests>,
    expiry: RequestExpiry,
    deferral: Mutex<Deferral>,
    pub(crate) status: Arc<HostStatus>,
    stop: CancellationToken,
    pub(crate) wakeups: LocalWakeups,
    /// Wake-ups and hints before this moment wait in their queues.
    next_look_at: Mutex<Instant>,
    on_claim: Option<OnClaim>,
    /// The incarnation that `on_claim` heard last, if its record may stand.
    reported: Mutex<Option<Incarnation>>,
    /// The last take-over that was sent, until an answer or a read shows its record (I7).
    taking_over: Mutex<Option<Incarnation>>,
    /// Records whose deletion was asked for and has no answer. The engine asks only once the work has stopped (I6).
    left_behind: Mutex<Vec<(SlotNumber, Incarnation, Epoch)>>,
}

impl HostStorage {
    /// Wraps `storage` for the candidate of `status`. Calls that are dropped after `stop` are not failures.
    pub(crate) fn new(
        storage: Arc<ElectionsTtlStorage>,
        wakeups: LocalWakeups,
        status: Arc<HostStatus>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            storage,
            cluster: ClusterName::from(status.candidate.name.as_str()),
            requests: watch::Sender::default(),
            expiry: RequestExpiry::default(),
            deferral: Mutex::default(),
            status,
            stop,
            wakeups,
            next_look_at: Mutex::new(Instant::ORIGIN),
            on_claim: None,
            reported: Mutex::new(None),
            taking_over: Mutex::new(None),
            left_behind: Mutex::default(),
        }
    }

    pub(crate) fn reporting_claims(self, on_claim: Option<OnClaim>) -> Self {
        Self { on_claim, ..self }
    }

    /// Waits for a reason to look at once: a wake-up of this machine, or a hint of the storage, at most one
    /// every [`Terms::HINT_GAP`]. Nothing depends on either ([`SysVvmHints`](vvm_storage::SysVvmHints)).
    pub(crate) async fn woken(&self) {
        let next_at = *self.next_look_at.lock();
        self.status.clock.sleep_until(next_at).await;
        tokio::select! {
            biased;
            () = self.wakeups.woken() => {}
            () = self.storage.hinted(&self.cluster) => {}
        }
        *self.next_look_at.lock() = self.status.clock.now().after(Terms::HINT_GAP);
    }

    pub(crate) fn requests(&self) -> watch::Receiver<OperatorRequests> {
        self.requests.subscribe()
    }

    /// Reads the operators' requests, and returns a step-down that has expired apart from them. May be stale.
    pub(crate) async fn look_at_requests(&self) -> Result<(OperatorRequests, Option<StepDown>), ReadError> {
        // Not watched: failures of a leader's looks show in the renewals.
        self.status.telemetry.calls(Call::Read).inc();
        let (_, requests) = self.storage.scan_with_requests(&self.cluster, &[]).await?;
        Ok(self.note_requests(requests))
    }

    /// Keeps the requests that have not expired. Returns them, and a step-down that has.
    fn note_requests(&self, mut requests: OperatorRequests) -> (OperatorRequests, Option<StepDown>) {
        let expired = self.expiry.take_expired(&mut requests, self.status.clock.now());
        self.status.paused(requests.pause.as_ref().map(|pause| pause.by()));
        self.requests.send_if_modified(|seen| {
            let changed = *seen != requests;
            *seen = requests.clone();
            changed
        });
        (requests, expired)
    }

    /// Records the answer in the status. A call that is dropped counts as unanswered, unless the host is to end.
    async fn watch<T, E: FailureKind>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.status.telemetry.calls(call).inc();
        let mut unanswered = CallGuard(Some((self, call)));
        let outcome = answer.await;
        unanswered.0 = None;
        match &outcome {
            Ok(_) => self.status.storage_answered(call),
            Err(error) => self.status.storage_failed(call, error.word(), error),
        }
        outcome
    }

    /// Lets other candidates claim `slot` first, which this host led under `epoch`: for `first_chance`,
    /// counted from this host's first claim that is refused.
    pub(crate) fn let_others_first(&self, slot: SlotNumber, epoch: Epoch, first_chance: Duration) {
        self.deferral.lock().given_up = Some(((slot, epoch), first_chance));
    }

    /// Refuses a claim while the name is paused, and while another candidate has the first chance. It decides by the
    /// last scan, which may be stale, so it only keeps candidates from claiming and releasing slots in vain:
    /// `requests::may_work` keeps work from starting in a pause.
    fn may_claim(&self, key: &ElectionKey, last: Option<Epoch>) -> Result<(), WriteError> {
        let seen = self.requests.borrow();
        if let Some(pause) = &seen.pause {
            return Err(WriteError::NotApplied(format!("paused by {}", pause.by()).into()));
        }
        let Some(last) = last else { return Ok(()) };
        let led = (key.slot, last);
        let mut deferral = self.deferral.lock();
        let given_up = deferral.given_up.filter(|(given_up, _)| *given_up == led);
        let request = seen.step_down.as_ref().filter(|request| {
            let is_on = matches!(request.stage, Stage::Accepted | Stage::Begun);
            is_on
                && request.is_about(key.slot, Some(last))
                && request.to.as_ref().is_some_and(|to| *to != self.status.candidate.holder)
        });
        let first_chance = given_up.map(|(_, first_chance)| first_chance);
        let Some(first_chance) = first_chance.or(request.map(|request| request.first_chance())) else {
            return Ok(());
        };
        let now = self.status.clock.now();
        let since = deferral.since.filter(|(of, _)| *of == led);
        let (_, since) = *deferral.since.insert(since.unwrap_or((led, now)));
        if now < since.after(first_chance) {
            let first = match request.and_then(|request| request.to.as_ref()) {
                Some(to) => format!("{to} has the first chance"),
                None => "other candidates have the first chance".into(),
            };
            return Err(WriteError::NotApplied(first.into()));
        }
        Ok(())
    }

    fn claims(&self, key: &ElectionKey, entry: &Entry) {
        let (slot, epoch, incarnation, ttl) = (key.slot, entry.epoch, entry.incarnation(), entry.ttl);
        self.report(LeftBehind { slot, epoch, incarnation, ttl });
    }

    fn claimed(&self, key: &ElectionKey, entry: &Entry, claim: Claim) -> Claim {
        match &claim {
            Claim::Claimed => self.stands(entry),
            Claim::Refused(found) => {
                self.report_gone(entry.incarnation());
                self.saw(key, found);
            }
        }
        claim
    }

    fn stands(&self, entry: &Entry) {
        if self.taking_over.lock().take_if(|sent| *sent == entry.incarnation()).is_some() {
            self.status.telemetry.take_overs.inc();
        }
    }

    pub(crate) fn leads(&self, key: &ElectionKey, standing: &Standing, ttl: Ttl) {
        let (slot, epoch, incarnation) = (key.slot, standing.epoch(), standing.incarnation());
        self.report(LeftBehind { slot, epoch, incarnation, ttl });
    }

    /// Returns the records of this process that may still stand and that no work needs. The next campaign deletes
    /// one that stands before it claims a slot. Until then the guardian has the ticket of it (`reported`).
    pub(crate) fn left_behind(&self) -> Vec<(Incarnation, Epoch)> {
        self.left_behind.lock().iter().map(|&(_, incarnation, epoch)| (incarnation, epoch)).collect()
    }

    fn saw(&self, key: &ElectionKey, found: &Slot) {
        found.entry().into_iter().for_each(|entry| self.stands(entry));
        let is = |incarnation, epoch| found.entry().is_some_and(|entry| entry.is_of(incarnation, epoch));
        let mut left = self.left_behind.lock();
        // A stale read shows an earlier epoch.
        left.retain(|&(slot, incarnation, epoch)| {
            slot != key.slot || found.last_epoch() < Some(epoch) || is(incarnation, epoch)
        });
        if !left.iter().any(|&(_, incarnation, epoch)| is(incarnation, epoch)) {
            self.status.saw(key, found);
        }
    }

    /// Reports a record. The lock keeps the order of reports.
    fn report(&self, claim: LeftBehind) {
        let mut reported = self.reported.lock();
        *reported = Some(claim.incarnation);
        self.on_claim.iter().for_each(|on_claim| on_claim(Some(claim)));
    }

    /// Reports that no record of `incarnation` stands, unless another one was reported since.
    fn report_gone(&self, incarnation: Incarnation) {
        let mut reported = self.reported.lock();
        if reported.take_if(|reported| *reported == incarnation).is_some() {
            self.on_claim.iter().for_each(|on_claim| on_claim(None));
        }
    }
}

/// The contract of [`TtlStorage`] holds: each verb calls the same verb of the storage once, or refuses with
/// `NotApplied` without a call. The host only refuses, so it never makes a claim earlier than the protocol does (I5).
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl TtlStorage<ElectionKey> for HostStorage {
    fn limits(&self) -> Limits {
        TtlStorage::<ElectionKey>::limits(&*self.storage)
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.may_claim(key, vacant.last_epoch)?;
        self.claims(key, entry);
        let claim = self.watch(Call::Write, self.storage.insert_if_not_exist(key, vacant, entry)).await?;
        Ok(self.claimed(key, entry, claim))
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.may_claim(key, Some(observed.epoch))?;
        self.claims(key, entry);
        *self.taking_over.lock() = Some(entry.incarnation());
        let claim = self.watch(Call::Write, self.storage.take_over(key, observed, entry)).await?;
        Ok(self.claimed(key, entry, claim))
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        let sent_at = self.status.clock.now();
        let swap = self.watch(Call::Write, self.storage.compare_and_swap(key, held, entry)).await?;
        match &swap {
            Swap::Swapped => self.status.renewed(sent_at),
            Swap::Mismatch(found) => self.saw(key, found),
        }
        Ok(swap)
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let left = (key.slot, incarnation, epoch);
        let is_other = |of: &(SlotNumber, Incarnation, Epoch)| *of != left;
        {
            let mut all = self.left_behind.lock();
            all.retain(is_other);
            all.push(left);
        }
        let deleted = self.storage.compare_and_delete(key, incarnation, epoch);
        let deleted = self.watch(Call::Write, deleted).await?;
        self.left_behind.lock().retain(is_other);
        self.report_gone(incarnation);
        if matches!(deleted, Delete::Deleted) {
            self.wakeups.wake();
        }
        Ok(deleted)
    }

    async fn get(&self, key: &ElectionKey) -> Result<Slot, ReadError> {
        let found = self.watch(Call::Read, self.storage.get(key)).await?;
        self.saw(key, &found);
        Ok(found)
    }

    async fn scan(&self, keys: &[ElectionKey]) -> Result<Vec<Slot>, ReadError> {
        let scan = self.storage.scan_with_requests(&self.cluster, keys);
        let (slots, requests) = self.watch(Call::Read, scan).await?;
        self.note_requests(requests);
        keys.iter().zip(&slots).for_each(|(key, found)| self.saw(key, found));
        Ok(slots)
    }

    async fn scan_some(&self, keys: &[ElectionKey], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let mut requests = None;
        let both = async {
            let (read, outcome) = self.storage.scan_some_with_requests(&self.cluster, keys, seen).await;
            requests = read;
            outcome
        };
        let outcome = self.watch(Call::Read, both).await;
        match requests {
            Some(requests) => drop(self.note_requests(requests)),
            // Without the requests a pause would be missed, so no slot may be claimed by this scan.
            None => seen.fill(None),
        }
        for (key, found) in keys.iter().zip(&*seen) {
            if let Some(found) = found {
                self.saw(key, found);
            }
        }
        outcome
    }

    /// The host passes every hint on, those of requests included ([`woken`](Self::woken)).
    fn hints_of_releases(&self) -> bool {
        self.storage.listens(&self.cluster)
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<ElectionKey>> {
        self.storage.documents()
    }

    async fn close(&self) {
        TtlStorage::<ElectionKey>::close(&*self.storage).await;
    }
}

impl fmt::Debug for HostStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostStorage({:?})", self.storage)
    }
}

#[derive(Debug, Default)]
struct Deferral {
    /// The leadership that this host gave up, and how long others have the first chance.
    given_up: Option<((SlotNumber, Epoch), Duration)>,
    /// The leadership after which claims are refused, and when the first claim was refused. The time does not
    /// count from the request, because a command may need long to stop.
    since: Option<((SlotNumber, Epoch), Instant)>,
}

/// Records a failure when it is dropped: a call is dropped unanswered when its time is over.
struct CallGuard<'call>(Option<(&'call HostStorage, Call)>);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if let Some((storage, call)) = self.0.filter(|(storage, _)| !storage.stop.is_cancelled()) {
            storage.status.storage_failed(call, NO_ANSWER, &"it does not answer");
        }
    }
}

#[cfg(test)]
mod tests;
