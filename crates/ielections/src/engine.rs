//! [`Elections`], and its engine: one task, not one per leadership (I11). 100,000 leaderships are a slab, a timer queue
//! and at most 256 calls. One task owns all state, so there are no locks and no lock order.

mod actors;
mod calls;
mod campaigning;
mod leading;
mod succession;

use crate::{
    AcquireError, Candidacy, Env, Key, Leadership, Loss, TtlStorage,
    successor::{SuccessorTerms, SupportPeriod},
};
use actors::{ActorEvent, Engine, Kind};
use calls::{Command, Reply};
use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    oneshot,
};

/// Campaigns for leaderships on one storage. One task drives them all until this value and the last one are dropped.
pub struct Elections<K> {
    commands: Arc<UnboundedSender<Command<K>>>,
    next_ticket: AtomicU64,
    /// A hint is in the channel already.
    hinted: Arc<AtomicBool>,
    min_ttl: Duration,
}

impl<K: Key> Elections<K> {
    /// Elections on `storage`.
    pub fn new(storage: Arc<dyn TtlStorage<K>>, env: Env) -> Self {
        let min_ttl = storage.limits().min_ttl;
        let (commands, received) = mpsc::unbounded_channel();
        let spawn = Arc::clone(&env.spawn);
        let commands = Arc::new(commands);
        let hinted = Arc::new(AtomicBool::new(false));
        let engine = Engine::new(storage, env, Arc::downgrade(&commands));
        let task = EngineTask::new(engine, received, Arc::clone(&hinted));
        spawn.spawn("elections", Box::pin(task));
        Self { commands, next_ticket: AtomicU64::new(0), hinted, min_ttl }
    }

    /// Campaigns until one of the candidacy's slots is led, and returns with the deadman armed (I4).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidacy. The engine deletes a record that an unanswered attempt
    /// may have written, and releases a leadership that was acquired at that moment.
    pub async fn acquire(&self, candidacy: Candidacy<K>) -> Result<(K, Leadership), AcquireError> {
        self.campaign(candidacy, None).await
    }

    /// [`acquire`](Self::acquire), as a standby that may be the leader's successor, and as a leader that names one, so
    /// that the loss of a machine costs little more than the support period of the terms. The candidacy has one slot.
    ///
    /// # Errors
    /// [`AcquireError`], also if the support period does not fit the TTL or the storage.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire). A standby that is named should ask its leader first, by
    /// [`PeerMessage::Stop`](crate::successor::PeerMessage): otherwise the leader needs the storage to go on.
    pub async fn acquire_with_successor(
        &self,
        candidacy: Candidacy<K>,
        terms: SuccessorTerms<K>,
    ) -> Result<(K, Leadership), AcquireError> {
        if candidacy.slots.len() > 1 {
            return Err(AcquireError::SuccessorOfManySlots);
        }
        let period = terms.period.get();
        SupportPeriod::new(period, candidacy.terms.ttl)?;
        if period < self.min_ttl {
            return Err(AcquireError::SupportTooShort { period, least: self.min_ttl });
        }
        self.campaign(candidacy, Some(terms)).await
    }

    async fn campaign(
        &self,
        candidacy: Candidacy<K>,
        successor: Option<SuccessorTerms<K>>,
    ) -> Result<(K, Leadership), AcquireError> {
        if candidacy.slots.is_empty() {
            return Err(AcquireError::NoSlots);
        }
        let ttl = candidacy.terms.ttl.get();
        if ttl < self.min_ttl {
            return Err(AcquireError::TtlTooShort { ttl, least: self.min_ttl });
        }
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Campaign { ticket, candidacy, successor, reply }).is_err() {
            return Err(AcquireError::Closing);
        }
        let mut withdrawal = CampaignGuard { commands: &self.commands, ticket, pending: true };
        let answer = answer.await;
        withdrawal.pending = false;
        // A task that ends without an answer was dropped with its runtime, which is closing, too.
        let (key, grant) = answer.unwrap_or(Err(AcquireError::Closing))?;
        grant.accept().map(|leadership| (key, leadership))
    }

    /// Hints to every campaign that the storage may have changed, for example because a leader on the same machine has
    /// released. Each campaign then reads its slots as soon as [`Terms::HINT_GAP`] has passed since its last read.
    /// Hints are optional. A false hint costs a read, and opens no slot earlier (I5). Never blocks.
    ///
    /// [`Terms::HINT_GAP`]: crate::Terms::HINT_GAP
    pub fn look_now(&self) {
        // At most one is in the channel, however often this is called.
        if !self.hinted.swap(true, Ordering::AcqRel) {
            // A task that has ended has no campaigns.
            drop(self.commands.send(Command::LookNow));
        }
    }

    /// Refuses and ends campaigns, sends every leader [`Loss::Closing`], and returns once each has handed back. A
    /// leadership that is dropped instead is neither deleted nor disarmed (I4, I6). May be called more than once.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the closing.
    pub async fn cleanup(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(Command::Cleanup { done }).is_ok() {
            // The task drops the sender when it has ended (I9), so an error is the expected answer.
            drop(closed.await);
        }
    }
}

impl<K> fmt::Debug for Elections<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Elections(closed: {})", self.commands.is_closed())
    }
}

struct CampaignGuard<'engine, K> {
    commands: &'engine UnboundedSender<Command<K>>,
    ticket: u64,
    pending: bool,
}

impl<K> Drop for CampaignGuard<'_, K> {
    fn drop(&mut self) {
        if self.pending {
            drop(self.commands.send(Command::Withdraw { ticket: self.ticket }));
        }
    }
}

struct EngineTask<K: Key> {
    engine: Engine<K>,
    commands: UnboundedReceiver<Command<K>>,
    hinted: Arc<AtomicBool>,
    has_handles: bool,
    /// Their callers get the answer when the task drops them. The last field: storage, clock, calls drop before (I9).
    cleanups: Vec<oneshot::Sender<()>>,
}

/// How many events of one kind are handled before those of the other kinds.
const ROUND: usize = 64;
/// How many rounds run before the task yields: a storage that answers at once would keep it busy for ever.
const ROUNDS: usize = 32;

impl<K: Key> EngineTask<K> {
    fn new(engine: Engine<K>, commands: UnboundedReceiver<Command<K>>, hinted: Arc<AtomicBool>) -> Self {
        Self { engine, commands, hinted, has_handles: true, cleanups: Vec::new() }
    }

    fn command(&mut self, command: Command<K>) {
        let engine = &mut self.engine;
        match command {
            Command::Campaign { ticket, candidacy, successor, reply } => {
                engine.begin_campaign(ticket, candidacy, successor, reply);
            }
            Command::Withdraw { ticket } => engine.withdraw(ticket),
            Command::LookNow => {
                // Reset before the campaigns read: a hint from here on may announce a newer change.
                self.hinted.store(false, Ordering::Release);
                engine.hint_campaigns();
            }
            Command::HandBack { lease, reply } => engine.hand_back(lease, reply),
            Command::Dropped { lease } => engine.dropped(lease),
            Command::Shown { lease, epoch, incarnation, shown } => {
                engine.take_shown(lease, epoch, incarnation, shown);
            }
            Command::Peer { actor, inbox, message } => engine.peer_message(actor, inbox, message),
            Command::Cleanup { done } => {
                self.cleanups.push(done);
                engine.close();
            }
        }
    }

    /// Runs one round over all that is ready. Returns `true` if there may be more. No kind of event starves the others.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        self.engine.now = self.engine.env.clock.now();
        let timers = self.handle_some(cx, |task, _| {
            let Some(id) = task.engine.timers.due(task.engine.now) else { return false };
            task.engine.deliver(id, ActorEvent::Woken);
            true
        });
        let answers = self.handle_some(cx, |task, cx| {
            let Some(answer) = task.engine.calls.poll_pending(cx) else { return false };
            task.engine.answered(answer);
            true
        });
        let commands = self.handle_some(cx, |task, cx| {
            let Some(command) = task.next_command(cx) else { return false };
            task.command(command);
            true
        });
        self.engine.queue_wake_ups();
        self.engine.confirm_deadlines();
        timers || answers || commands || self.engine.calls.must_be_polled()
    }

    /// Calls `handle_one` until it finds nothing and returns `false`, at most [`ROUND`] times. Returns `true` if there
    /// may be more. After each call, actors take their turns, and calls that are answered at once are delivered: an
    /// actor goes as far as it can while its data is in the processor's cache.
    fn handle_some(
        &mut self,
        cx: &mut Context<'_>,
        mut handle_one: impl FnMut(&mut Self, &mut Context<'_>) -> bool,
    ) -> bool {
        (0..ROUND).all(|_| {
            let handled = handle_one(self, cx);
            loop {
                while let Some(id) = self.engine.next_turn() {
                    self.engine.deliver(id, ActorEvent::MaySend);
                }
                let Some(answer) = self.engine.calls.poll_new(cx) else { return handled };
                self.engine.answered(answer);
            }
        })
    }

    fn next_command(&mut self, cx: &mut Context<'_>) -> Option<Command<K>> {
        if !self.has_handles {
            return None;
        }
        match self.commands.poll_recv(cx) {
            Poll::Ready(None) => {
                self.has_handles = false;
                None
            }
            Poll::Ready(command) => command,
            Poll::Pending => None,
        }
    }

    fn finished(&self) -> bool {
        let ending = self.engine.closing || !self.has_handles;
        ending && self.engine.actors.is_empty() && self.engine.calls.len() == 0
    }
}

impl<K: Key> Engine<K> {
    fn deliver(&mut self, id: usize, event: ActorEvent) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        actor.received(&event);
        match &actor.kind {
            Kind::Campaigning(_) => self.campaign_event(id, event),
            Kind::Leading(_) => self.lease_event(id, event),
            Kind::Releasing(_) => self.release_event(id, event),
            Kind::Succeeding(_) => self.successor_event(id, event),
            Kind::Changing => {}
        }
    }

    fn answered(&mut self, (id, reply): (usize, Reply)) {
        self.read_clock();
        self.deliver(id, ActorEvent::Answered(reply));
    }

    /// The process may have been stopped since the round began: what arrived was not seen before now (I5, N5).
    fn read_clock(&mut self) {
        self.now = self.env.clock.now();
    }

    /// Ends campaigns and sends each leader a loss. Renewals continue until each has handed back (I6).
    fn close(&mut self) {
        self.closing = true;
        let tickets: Vec<u64> = self.tickets.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.withdraw(ticket));
        self.lose_all(&Loss::Closing);
    }
}

/// The calls are in a collection that pins them. Everything else may move.
impl<K: Key> Unpin for EngineTask<K> {}

impl<K: Key> Future for EngineTask<K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task = self.get_mut();
        for _ in 0..ROUNDS {
            let busy = task.round(cx);
            if task.finished() {
                return Poll::Ready(());
            }
            if !busy && task.engine.timers.poll_due(cx).is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A task can end while leases are held, for example because its runtime is shut down. Nothing renews them
/// then, so each leader gets a loss, and its deadline stays armed (I4).
impl<K: Key> Drop for EngineTask<K> {
    fn drop(&mut self) {
        self.engine.lose_all(&Loss::EngineEnded);
    }
}
