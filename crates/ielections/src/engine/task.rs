//! The engine's task: commands in, storage calls out, timers between. What an event means for a campaign, a
//! lease or a release is in `campaigning`, `leading` and `releasing`.

use super::{
    Command,
    actor::{Actor, Event, Kind},
    call::{Call, Limit, Reply, Request},
    timers::Timers,
};
use crate::{EngineSettings, Env, Key, Loss, TtlStorage, timing::Jitter};
use futures_util::stream::{FuturesUnordered, StreamExt};
use slab::Slab;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender},
    oneshot,
};
use vvm_clock::Instant;

pub(super) struct Engine<K: Key, C> {
    pub(super) storage: Arc<dyn TtlStorage<K>>,
    make_call: MakeCall<K, C>,
    pub(super) env: Env,
    pub(super) settings: EngineSettings,
    inbox: Inbox<K>,
    /// For the handles of leaderships. Weak, so that the task ends when nobody is left to command it.
    pub(super) commands: Weak<UnboundedSender<Command<K>>>,
    /// The present, read at the beginning of a round and after each answer: what is sent counts from a
    /// reading before it (I3), what an answer shows from a reading after it (I5), and nothing else needs one
    /// of its own.
    pub(super) now: Instant,
    pub(super) actors: Slab<Actor<K>>,
    pub(super) tickets: BTreeMap<u64, usize>,
    pub(super) timers: Timers,
    /// Actors whose wake-up has moved in this round. The queue hears of it at the end: most calls of a
    /// storage in memory are over before their time limit would have had to be queued.
    pub(super) moved: Vec<usize>,
    calls: FuturesUnordered<C>,
    /// A call was made that was not polled yet.
    unpolled: bool,
    pub(super) renewals: VecDeque<usize>,
    pub(super) others: VecDeque<usize>,
    /// Leases with a confirmed renewal that the deadman has not been told of.
    pub(super) confirmed: Vec<usize>,
    pub(super) closing: bool,
    commanded: bool,
    jitter: fastrand::Rng,
    /// Where keys are written out for people, so that each costs one allocation.
    text: String,
    /// Dropped with the engine, which is their answer. The last field: whoever hears it finds the storage,
    /// the clock and every call let go (I9).
    cleanups: Vec<oneshot::Sender<()>>,
}

/// Makes a call out of a request. In a field, so that the engine's type knows the call's.
pub(super) type MakeCall<K, C> = fn(Arc<dyn TtlStorage<K>>, usize, Request<K>, Limit) -> C;

/// What comes from the handles.
pub(super) struct Inbox<K> {
    pub(super) commands: UnboundedReceiver<Command<K>>,
    /// A hint is among them.
    pub(super) hinted: Arc<AtomicBool>,
}

/// How much of one kind is done before the others get their turn.
const ROUND: usize = 64;
/// How many rounds are made before other tasks of the runtime get their turn: a storage that answers at once
/// can keep an engine busy without end.
const ROUNDS: usize = 32;

impl<K: Key, C: Call> Engine<K, C> {
    pub(super) fn new(
        storage: Arc<dyn TtlStorage<K>>,
        make_call: MakeCall<K, C>,
        env: Env,
        settings: EngineSettings,
        inbox: Inbox<K>,
        commands: Weak<UnboundedSender<Command<K>>>,
    ) -> Self {
        let timers = Timers::new(Arc::clone(&env.clock));
        let jitter = fastrand::Rng::with_seed(env.entropy.next_u64());
        let now = env.clock.now();
        Self {
            storage,
            make_call,
            env,
            settings,
            inbox,
            commands,
            now,
            actors: Slab::new(),
            tickets: BTreeMap::new(),
            timers,
            moved: Vec::new(),
            calls: FuturesUnordered::new(),
            unpolled: false,
            renewals: VecDeque::new(),
            others: VecDeque::new(),
            confirmed: Vec::new(),
            closing: false,
            commanded: true,
            jitter,
            text: String::new(),
            cleanups: Vec::new(),
        }
    }

    /// Returns the jitter of the next renewal. It needs no secrecy, so the environment's entropy only seeds
    /// it.
    pub(super) fn jitter(&mut self) -> Jitter {
        Jitter::from_random(self.jitter.u64(..))
    }

    /// The key as people read it.
    pub(super) fn text(&mut self, key: &K) -> Arc<str> {
        self.text.clear();
        // Nothing but the key itself can fail here, and then what it did write has to do.
        let _ = write!(self.text, "{key}");
        self.text.as_str().into()
    }

    /// Sends a request for the actor. Its first poll is in the same round, or in the next one of the same
    /// turn.
    pub(super) fn call(&mut self, id: usize, timeout: Duration, request: Request<K>) {
        if let Some(actor) = self.actors.get_mut(id) {
            actor.calling = true;
        }
        let withdrawn = if request.is_read() { self.withdrawable(id) } else { None };
        let limit = Limit { clock: Arc::clone(&self.env.clock), timeout, withdrawn };
        self.calls.push((self.make_call)(Arc::clone(&self.storage), id, request, limit));
        self.unpolled = true;
    }

    fn command(&mut self, command: Command<K>) {
        match command {
            Command::Campaign { ticket, candidacy, reply } => self.begin_campaign(ticket, candidacy, reply),
            Command::Withdraw { ticket } => self.withdraw(ticket),
            Command::LookNow => {
                // Before anybody looks: a hint from here on may tell of something newer.
                self.inbox.hinted.store(false, Ordering::Release);
                self.hint_campaigns();
            }
            Command::HandBack { lease, reply } => self.hand_back(lease, reply),
            Command::Dropped { lease } => self.dropped(lease),
            Command::Shown { lease, epoch, incarnation, slot } => self.shown(lease, epoch, incarnation, slot),
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

    fn answered(&mut self, id: usize, reply: Reply) {
        // However long this process stood still since the round began, the answer was not seen before now
        // (I5).
        self.now = self.env.clock.now();
        self.deliver(id, Event::Answered(reply));
    }

    /// One round over what is ready; `true` if there may be more. However much there is of one kind, the
    /// others are not kept waiting.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        self.now = self.env.clock.now();
        let timers = self.some(|engine| {
            let Some(id) = engine.timers.due(engine.now) else { return false };
            engine.deliver(id, Event::Woken);
            true
        });
        let answers = self.some(|engine| {
            let Poll::Ready(Some((id, reply))) = engine.calls.poll_next_unpin(cx) else {
                engine.unpolled = false;
                return false;
            };
            engine.answered(id, reply);
            true
        });
        let commands = self.some(|engine| {
            let Some(command) = engine.next_command(cx) else { return false };
            engine.command(command);
            true
        });
        self.queue_wake_ups();
        self.tell_deadman();
        timers || answers || commands || self.unpolled
    }

    /// Does it until it says `false`, or often enough for one round; `true` if there may be more to do.
    fn some(&mut self, mut one: impl FnMut(&mut Self) -> bool) -> bool {
        (0..ROUND).all(|_| {
            let done = one(self);
            self.take_turns();
            done
        })
    }

    fn next_command(&mut self, cx: &mut Context<'_>) -> Option<Command<K>> {
        if !self.commanded {
            return None;
        }
        match self.inbox.commands.poll_recv(cx) {
            Poll::Ready(None) => {
                self.commanded = false;
                None
            }
            Poll::Ready(command) => command,
            Poll::Pending => None,
        }
    }

    /// Lets actors call the storage, as many as may at once.
    fn take_turns(&mut self) {
        while self.calls.len() < self.settings.max_in_flight.get()
            && let Some(id) = self.next_turn()
        {
            self.deliver(id, Event::MaySend);
        }
    }

    fn finished(&self) -> bool {
        let ending = self.closing || !self.commanded;
        ending && self.actors.is_empty() && self.calls.is_empty()
    }
}

/// Nothing in it is pinned in place: the set of calls keeps each where it is.
impl<K: Key, C> Unpin for Engine<K, C> {}

impl<K: Key, C: Call> Future for Engine<K, C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let engine = self.get_mut();
        for _ in 0..ROUNDS {
            let busy = engine.round(cx);
            if engine.finished() {
                return Poll::Ready(());
            }
            if !busy && engine.timers.poll_due(cx).is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A task that ends with leases held (its runtime shut down, something injected panicked) renews nothing any
/// more; their owners hear of it, and their deadlines stay armed (I4).
impl<K: Key, C> Drop for Engine<K, C> {
    fn drop(&mut self) {
        for (_, actor) in &self.actors {
            if let Kind::Leading(leading) = &actor.kind {
                leading.standing.lose(Loss::EngineEnded);
            }
        }
    }
}
