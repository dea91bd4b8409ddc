//! [`Engine`]: all actors with their wake-ups, their queues and their calls.

use super::calls::{self, CallPriority, Calls, CampaignResult, Command, Reply, StorageCall, Timers};
use crate::{
    AcquireError, BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Entry,
    Env, Epoch, Fence, FenceState, Incarnation, Key, Loss, Page, ReadError, ReleaseOutcome, Scan, Standing,
    TtlStorage, WriteError,
    bounded::Limit,
    documents::Partition,
    protocol::{
        Campaign, Lease, LeaseEvent, Release,
        successor::{Successor, Support},
    },
    successor::{PeerInbox, PeerLink, SuccessorTerms, SupportPeriod},
    timing::Jitter,
};
use async_trait::async_trait;
use futures_util::future::{AbortHandle, AbortRegistration};
use slab::Slab;
use std::{
    collections::BTreeMap,
    fmt::Write,
    mem,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use vvm_clock::Instant;
use vvm_deadman::ArmedDeadline;

pub(super) struct Engine<K: Key> {
    pub(super) storage: Arc<dyn TtlStorage<K>>,
    pub(super) env: Env,
    /// For the leaderships. Weak, so that the task ends when no handle is left.
    pub(super) commands: Weak<UnboundedSender<Command<K>>>,
    /// The time, read at the beginning of a round, so before each send (I3), and after each answer (I5).
    pub(super) now: Instant,
    pub(super) actors: Slab<Actor<K>>,
    pub(super) tickets: BTreeMap<u64, usize>,
    pub(super) timers: Timers,
    /// Actors whose wake-up has moved in this round. The timer queue is updated at the end of the round: a
    /// storage in memory has answered most calls by then, and their time limits need no timer.
    moved: Vec<usize>,
    pub(super) calls: Calls,
    /// Leases with a confirmed renewal that the deadman does not have yet.
    pub(super) confirmed: Vec<usize>,
    pub(super) closing: bool,
    next_inbox: u64,
    jitter: fastrand::Rng,
    /// A buffer for formatting keys, so that each costs one allocation.
    text: String,
}

impl<K: Key> Engine<K> {
    pub(super) fn new(
        storage: Arc<dyn TtlStorage<K>>,
        env: Env,
        commands: Weak<UnboundedSender<Command<K>>>,
    ) -> Self {
        let timers = Timers::new(Arc::clone(&env.clock));
        let jitter = fastrand::Rng::with_seed(env.entropy.next_u64());
        let now = env.clock.now();
        Self {
            storage,
            env,
            commands,
            now,
            actors: Slab::new(),
            tickets: BTreeMap::new(),
            timers,
            moved: Vec::new(),
            calls: Calls::default(),
            confirmed: Vec::new(),
            closing: false,
            next_inbox: 0,
            jitter,
            text: String::new(),
        }
    }

    /// Returns the jitter of the next renewal. It needs no secrecy, so the environment's entropy only seeds it.
    pub(super) fn jitter(&mut self) -> Jitter {
        Jitter::from_random(self.jitter.u64(..))
    }

    /// Returns a new inbox, and the number that its messages carry: a later actor may have this actor's number.
    pub(super) fn inbox(&mut self, actor: usize) -> (u64, PeerInbox) {
        self.next_inbox += 1;
        let (inbox, commands) = (self.next_inbox, Weak::clone(&self.commands));
        let deliver = move |message| {
            if let Some(commands) = commands.upgrade() {
                // A task that has ended has no actors.
                drop(commands.send(Command::Peer { actor, inbox, message }));
            }
        };
        (inbox, PeerInbox::new(deliver))
    }

    pub(super) fn text(&mut self, key: &K) -> Arc<str> {
        self.text.clear();
        // Only the key's own `Display` can fail. The part before the failure is good enough for a message.
        let _ = write!(self.text, "{key}");
        self.text.as_str().into()
    }

    pub(super) fn add(&mut self, kind: Kind<K>) -> usize {
        let never = Instant::NEVER;
        self.actors.insert(Actor { wake_at: never, queued_for: never, queued: false, calling: false, kind })
    }

    pub(super) fn remove(&mut self, id: usize) {
        if let Some(actor) = self.actors.try_remove(id) {
            self.timers.shift(id, actor.queued_for, Instant::NEVER);
        }
    }

    pub(super) fn wake_at(&mut self, id: usize, at: Instant) {
        if let Some(actor) = self.actors.get_mut(id)
            && mem::replace(&mut actor.wake_at, at) != at
        {
            self.moved.push(id);
        }
    }

    pub(super) fn queue_wake_ups(&mut self) {
        for id in self.moved.drain(..) {
            // The actor may have ended, and another one may have its number: both are handled alike.
            if let Some(actor) = self.actors.get_mut(id)
                && actor.queued_for != actor.wake_at
            {
                self.timers.shift(id, actor.queued_for, actor.wake_at);
                actor.queued_for = actor.wake_at;
            }
        }
    }

    pub(super) fn queue(&mut self, id: usize, turn: CallPriority) {
        if let Some(actor) = self.actors.get_mut(id)
            && !mem::replace(&mut actor.queued, true)
        {
            self.calls.queue(id, turn);
        }
    }

    pub(super) fn next_turn(&mut self) -> Option<usize> {
        // The actor may have ended, and a new one have its number. `queued` says whether this actor waits for a turn.
        let waits = |id| self.actors.get_mut(id).is_some_and(|actor| mem::take(&mut actor.queued));
        self.calls.next_turn(waits)
    }

    /// Sends a request for the actor. Its first poll follows in the same round.
    pub(super) fn call(&mut self, id: usize, timeout: Duration, request: StorageCall<K>) {
        if let Some(actor) = self.actors.get_mut(id) {
            actor.calling = true;
        }
        let withdrawn = if request.is_read() { self.withdrawable(id) } else { None };
        let limit = Limit { clock: Arc::clone(&self.env.clock), timeout, withdrawn };
        self.calls.push(Box::pin(calls::call(Arc::clone(&self.storage), id, request, limit)));
    }

    /// Lets a read end with its campaign (I10). A write runs for its whole time.
    fn withdrawable(&mut self, id: usize) -> Option<AbortRegistration> {
        let Kind::Campaigning(campaigning) = &mut self.actors.get_mut(id)?.kind else { return None };
        let (reading, withdrawn) = AbortHandle::new_pair();
        campaigning.reading = Some(reading);
        Some(withdrawn)
    }

    pub(super) fn lose_all(&self, loss: &Loss) {
        for (_, actor) in &self.actors {
            if let Kind::Leading(leading) = &actor.kind {
                leading.standing.state().lose(loss.clone());
            }
        }
    }
}

pub(super) struct Actor<K> {
    pub(super) wake_at: Instant,
    /// Its instant in the timer queue, which is updated at the end of a round.
    pub(super) queued_for: Instant,
    /// It waits for its turn to call the storage.
    pub(super) queued: bool,
    /// A call of this actor has no answer yet, or the answer is not delivered yet.
    pub(super) calling: bool,
    pub(super) kind: Kind<K>,
}

pub(super) enum Kind<K> {
    Campaigning(Box<Campaigning<K>>),
    Leading(Box<HeldLease<K>>),
    Releasing(Box<Releasing<K>>),
    Succeeding(Box<Succeeding<K>>),
    /// Between two kinds, within one step.
    Changing,
}

pub(super) struct Campaigning<K> {
    pub(super) ticket: u64,
    pub(super) campaign: Campaign,
    pub(super) slots: Arc<[K]>,
    pub(super) holder: Arc<str>,
    pub(super) reply: Option<oneshot::Sender<CampaignResult<K>>>,
    /// Ends the last read, if it is still in flight.
    pub(super) reading: Option<AbortHandle>,
    pub(super) succession: Option<Succession<K>>,
    /// Why it fails. It is out of time, and waits until the leader no longer names it as successor (N7).
    pub(super) failure: Option<AcquireError>,
}

/// The part of a campaign that would succeed the leader.
pub(super) struct Succession<K> {
    pub(super) terms: SuccessorTerms<K>,
    /// Its actor ([`Kind::Succeeding`]).
    pub(super) actor: usize,
}

/// A standby that may be the successor of the leader, beside its campaign.
pub(super) struct Succeeding<K> {
    pub(super) inbox: u64,
    pub(super) successor: Successor,
    pub(super) key: K,
    pub(super) link: Arc<dyn PeerLink<K>>,
    /// The ticket of its campaign; `None` once that has ended.
    pub(super) campaign: Option<u64>,
    pub(super) period: Duration,
    /// The record that the last look of the campaign has shown, if the link knows its leader.
    pub(super) leader: Option<Entry>,
    /// When it offers itself again to that leader.
    pub(super) offers_at: Instant,
}

/// A leader that may name a successor.
pub(super) struct LeaderSupport<K> {
    pub(super) inbox: u64,
    pub(super) support: Support,
    pub(super) period: SupportPeriod,
    pub(super) link: Arc<dyn PeerLink<K>>,
    /// The kill deadline of the support period, beside that of the TTL.
    pub(super) armed: Option<ArmedDeadline>,
    pub(super) wakes_at: Instant,
    pub(super) lease_wakes_at: Instant,
}

pub(super) struct HeldLease<K> {
    pub(super) key: K,
    pub(super) lease: Lease,
    pub(super) standing: Standing,
    /// Disarmed only by handing back (I4). If it is dropped, the deadline stays armed for good.
    pub(super) armed: ArmedDeadline,
    /// The storage showed that the record is not ours: there is none to delete.
    pub(super) gone: bool,
    pub(super) handing_back: Option<oneshot::Sender<ReleaseOutcome>>,
    pub(super) dropped: bool,
    pub(super) support: Option<Box<LeaderSupport<K>>>,
}

pub(super) struct Releasing<K> {
    pub(super) key: K,
    pub(super) release: Release,
    /// `None` for a record that a campaign left behind: no caller waits for the outcome.
    pub(super) reply: Option<oneshot::Sender<ReleaseOutcome>>,
}

pub(super) enum ActorEvent {
    Woken,
    MaySend,
    Answered(Reply),
}

impl<K> Actor<K> {
    pub(super) fn received(&mut self, event: &ActorEvent) {
        match event {
            ActorEvent::Woken => (self.wake_at, self.queued_for) = (Instant::NEVER, Instant::NEVER),
            ActorEvent::MaySend => {}
            ActorEvent::Answered(_) => self.calling = false,
        }
    }
}

impl<K> HeldLease<K> {
    pub(super) fn is_ending(&self) -> bool {
        self.dropped || self.handing_back.is_some()
    }
}

/// The documents of a slot that is led, if the storage keeps any.
pub(super) struct KeyPartition<K: Key> {
    pub(super) key: K,
    pub(super) storage: Weak<dyn TtlStorage<K>>,
    pub(super) lease: usize,
    pub(super) commands: Weak<UnboundedSender<Command<K>>>,
}

#[derive(Debug, thiserror::Error)]
#[error("the elections have ended, or their storage keeps no documents any more")]
struct ElectionsEnded;

impl From<ElectionsEnded> for ReadError {
    fn from(ended: ElectionsEnded) -> Self {
        Self::Fatal(ended.into())
    }
}

impl From<ElectionsEnded> for WriteError {
    fn from(ended: ElectionsEnded) -> Self {
        Self::Fatal(ended.into())
    }
}

impl<K: Key> KeyPartition<K> {
    fn storage(&self) -> Result<Arc<dyn TtlStorage<K>>, ElectionsEnded> {
        self.storage.upgrade().ok_or(ElectionsEnded)
    }
}

fn documents<K: Key>(storage: &Arc<dyn TtlStorage<K>>) -> Result<&dyn DocumentStorage<K>, ElectionsEnded> {
    storage.documents().ok_or(ElectionsEnded)
}

#[async_trait]
impl<K: Key> Partition for KeyPartition<K> {
    fn limits(&self) -> Option<DocumentLimits> {
        Some(documents(&self.storage().ok()?).ok()?.document_limits())
    }

    async fn write(&self, fence: &Fence, batch: &[DocumentWrite]) -> Result<BatchOutcome, WriteError> {
        documents(&self.storage()?)?.write_documents(&self.key, fence, batch).await
    }

    async fn fence_state(&self) -> Result<FenceState, ReadError> {
        documents(&self.storage()?)?.fence_state(&self.key).await
    }

    async fn document(&self, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        documents(&self.storage()?)?.document(&self.key, id).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page, ReadError> {
        documents(&self.storage()?)?.scan_documents(&self.key, scan).await
    }

    fn report(&self, epoch: Epoch, incarnation: Incarnation, shown: LeaseEvent) {
        if let Some(commands) = self.commands.upgrade() {
            // A task that has ended has lost the lease already.
            drop(commands.send(Command::Shown { lease: self.lease, epoch, incarnation, shown }));
        }
    }
}
