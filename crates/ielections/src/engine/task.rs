//! The engine's task: commands in, storage calls out, timers between. What an event means for a campaign, a lease or a
//! release is in `campaigning`, `leading` and `releasing`.

use super::{
    Command,
    call::{self, Call, Reply, Request},
    campaigning::Campaigning,
    leading::Leading,
    releasing::Releasing,
    timers::Timers,
};
use crate::{EngineSettings, Env, Key, Loss, TtlStorage, timing::Jitter};
use clock::Instant;
use futures_util::stream::{FuturesUnordered, StreamExt};
use slab::Slab;
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, WeakUnboundedSender},
    oneshot,
};

pub(super) struct Engine<K: Key> {
    pub(super) storage: Arc<dyn TtlStorage<K>>,
    pub(super) env: Env,
    pub(super) settings: EngineSettings,
    inbox: UnboundedReceiver<Command<K>>,
    /// For the handles of leaderships. Weak, so that the task ends when nobody is left to command it.
    pub(super) commands: WeakUnboundedSender<Command<K>>,
    pub(super) actors: Slab<Actor<K>>,
    pub(super) tickets: BTreeMap<u64, usize>,
    timers: Timers,
    calls: FuturesUnordered<Call>,
    /// Answered at the first poll: most calls of a storage in memory.
    answered: VecDeque<(usize, Reply)>,
    renewals: VecDeque<usize>,
    others: VecDeque<usize>,
    /// Leases with a confirmed renewal that the deadman has not been told of.
    pub(super) confirmed: Vec<usize>,
    pub(super) closing: bool,
    cleanups: Vec<oneshot::Sender<()>>,
    commanded: bool,
    jitter: u64,
}

/// One campaign, lease or release.
pub(super) struct Actor<K> {
    wake_at: Instant,
    queued: bool,
    pub(super) kind: Kind<K>,
}

pub(super) enum Kind<K> {
    Campaigning(Box<Campaigning<K>>),
    Leading(Box<Leading<K>>),
    Releasing(Box<Releasing<K>>),
    /// Between two kinds, within one step.
    Changing,
}

/// Which queue an actor waits in for its turn to call the storage.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    Renewal,
    Other,
}

impl<K: Key> Engine<K> {
    pub(super) fn new(
        storage: Arc<dyn TtlStorage<K>>,
        env: Env,
        settings: EngineSettings,
        inbox: UnboundedReceiver<Command<K>>,
        commands: WeakUnboundedSender<Command<K>>,
    ) -> Self {
        let timers = Timers::new(Arc::clone(&env.clock));
        let jitter = env.entropy.next_u64();
        Self {
            storage,
            env,
            settings,
            inbox,
            commands,
            actors: Slab::new(),
            tickets: BTreeMap::new(),
            timers,
            calls: FuturesUnordered::new(),
            answered: VecDeque::new(),
            renewals: VecDeque::new(),
            others: VecDeque::new(),
            confirmed: Vec::new(),
            closing: false,
            cleanups: Vec::new(),
            commanded: true,
            jitter,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.env.clock.now()
    }

    /// Jitter needs no secrecy, and every renewal asks for some: one seed, then splitmix64 (Steele, Lea, Flood 2014).
    pub(super) fn jitter(&mut self) -> Jitter {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.jitter ^ (self.jitter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Jitter::from_random(mixed ^ (mixed >> 31))
    }

    pub(super) fn add(&mut self, kind: Kind<K>) -> usize {
        self.actors.insert(Actor { wake_at: Instant::NEVER, queued: false, kind })
    }

    pub(super) fn remove(&mut self, id: usize) {
        self.wake_at(id, Instant::NEVER);
        self.actors.try_remove(id);
    }

    pub(super) fn wake_at(&mut self, id: usize, at: Instant) {
        if let Some(actor) = self.actors.get_mut(id) {
            let from = mem::replace(&mut actor.wake_at, at);
            if from != at {
                self.timers.shift(id, from, at);
            }
        }
    }

    /// Lets the actor call the storage when its turn comes.
    pub(super) fn queue(&mut self, id: usize, turn: Turn) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        if mem::replace(&mut actor.queued, true) {
            return;
        }
        match turn {
            Turn::Renewal => self.renewals.push_back(id),
            Turn::Other => self.others.push_back(id),
        }
    }

    /// Sends a request for the actor. Its first poll happens here: what is answered at once never needs a wake-up.
    pub(super) fn call(&mut self, cx: &mut Context<'_>, id: usize, timeout: Duration, request: Request<K>) {
        let storage = Arc::clone(&self.storage);
        let clock = Arc::clone(&self.env.clock);
        let mut call = call::call(id, storage, clock, timeout, request);
        match call.as_mut().poll(cx) {
            Poll::Ready(answer) => self.answered.push_back(answer),
            Poll::Pending => self.calls.push(call),
        }
    }

    /// The next actor whose turn it is; renewals first.
    fn next_turn(&mut self) -> Option<usize> {
        while let Some(id) = self.renewals.pop_front().or_else(|| self.others.pop_front()) {
            // A place in the queue can outlive its actor, and even meet the next one under the same number.
            if let Some(actor) = self.actors.get_mut(id)
                && mem::replace(&mut actor.queued, false)
            {
                return Some(id);
            }
        }
        None
    }

    fn command(&mut self, cx: &mut Context<'_>, command: Command<K>) {
        match command {
            Command::Campaign { ticket, candidacy, reply } => {
                self.begin_campaign(cx, ticket, candidacy, reply)
            }
            Command::Withdraw { ticket } => self.withdraw(ticket),
            Command::HandBack { lease, reply } => self.hand_back(lease, reply),
            Command::Dropped { lease } => self.dropped(lease),
            Command::Cleanup { done } => {
                self.cleanups.push(done);
                self.close();
            }
        }
    }

    /// Refuses and ends campaigns, tells every holder. Renewals go on until each has handed back (I6).
    fn close(&mut self) {
        self.closing = true;
        let tickets: Vec<u64> = self.tickets.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.withdraw(ticket));
        for (_, actor) in &self.actors {
            if let Kind::Leading(leading) = &actor.kind {
                leading.standing.lose(Loss::Closing);
            }
        }
    }

    fn woken(&mut self, cx: &mut Context<'_>, id: usize) {
        match self.actors.get_mut(id) {
            Some(actor) => actor.wake_at = Instant::NEVER,
            None => return,
        }
        match &self.actors[id].kind {
            Kind::Campaigning(_) => self.campaign_woken(cx, id),
            Kind::Leading(_) => self.lease_woken(cx, id),
            Kind::Releasing(_) => self.release_woken(cx, id),
            Kind::Changing => {}
        }
    }

    fn may_send(&mut self, cx: &mut Context<'_>, id: usize) {
        match &self.actors[id].kind {
            Kind::Campaigning(_) => self.campaign_may_send(cx, id),
            Kind::Leading(_) => self.lease_may_send(cx, id),
            Kind::Releasing(_) => self.release_may_send(cx, id),
            Kind::Changing => {}
        }
    }

    fn answer(&mut self, cx: &mut Context<'_>, id: usize, reply: Reply) {
        match self.actors.get(id).map(|actor| &actor.kind) {
            Some(Kind::Campaigning(_)) => self.campaign_answered(cx, id, reply),
            Some(Kind::Leading(_)) => self.lease_answered(cx, id, reply),
            Some(Kind::Releasing(_)) => self.release_answered(cx, id, reply),
            Some(Kind::Changing) | None => {}
        }
    }

    /// One round over everything that is ready; `true` if anything was.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progressed = false;
        while self.commanded {
            match self.inbox.poll_recv(cx) {
                Poll::Ready(Some(command)) => {
                    progressed = true;
                    self.command(cx, command);
                }
                Poll::Ready(None) => self.commanded = false,
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some((id, reply))) = self.calls.poll_next_unpin(cx) {
            progressed = true;
            self.answer(cx, id, reply);
        }
        while let Some((id, reply)) = self.answered.pop_front() {
            progressed = true;
            self.answer(cx, id, reply);
        }
        let now = self.now();
        while let Some(id) = self.timers.due(now) {
            progressed = true;
            self.woken(cx, id);
        }
        while self.calls.len() < self.settings.max_in_flight.get()
            && let Some(id) = self.next_turn()
        {
            progressed = true;
            self.may_send(cx, id);
        }
        progressed
    }

    fn finished(&mut self) -> bool {
        let ending = self.closing || !self.commanded;
        let idle = self.actors.is_empty() && self.calls.is_empty() && self.answered.is_empty();
        if ending && idle {
            for done in self.cleanups.drain(..) {
                // A caller that no longer waits needs no answer.
                let _ = done.send(());
            }
        }
        ending && idle
    }
}

/// Nothing in it is pinned in place: the calls in flight are boxed.
impl<K: Key> Unpin for Engine<K> {}

impl<K: Key> Future for Engine<K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let engine = self.get_mut();
        loop {
            while engine.round(cx) {}
            engine.tell_deadman();
            if engine.finished() {
                return Poll::Ready(());
            }
            if engine.timers.poll_due(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// A task that ends with leases held (its runtime shut down, a driver panicked) renews nothing any more; their owners
/// hear of it, and their deadlines stay armed (I4).
impl<K: Key> Drop for Engine<K> {
    fn drop(&mut self) {
        for (_, actor) in &self.actors {
            if let Kind::Leading(leading) = &actor.kind {
                leading.standing.lose(Loss::Dropped);
            }
        }
    }
}
