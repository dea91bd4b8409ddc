//! [`EngineTask`]: receives commands, wakes actors and delivers answers, in rounds.

use super::{
    actor::{Event, Kind},
    actors::Engine,
    call::{Call, Reply},
    command::Command,
};
use crate::{Key, Loss};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

pub(super) struct EngineTask<K: Key, C> {
    engine: Engine<K, C>,
    commands: UnboundedReceiver<Command<K>>,
    /// A hint is among the commands.
    hinted: Arc<AtomicBool>,
    /// Whether a handle exists that can send commands.
    has_handles: bool,
    /// Their callers get the answer when the task drops them. The last field, so that storage, clock and
    /// calls are dropped before (I9).
    cleanups: Vec<oneshot::Sender<()>>,
}

/// How many events of one kind are handled before those of the other kinds.
const ROUND: usize = 64;
/// How many rounds run before the task yields: a storage that answers at once would keep it busy for ever.
const ROUNDS: usize = 32;

impl<K: Key, C: Call> EngineTask<K, C> {
    pub(super) fn new(
        engine: Engine<K, C>,
        commands: UnboundedReceiver<Command<K>>,
        hinted: Arc<AtomicBool>,
    ) -> Self {
        Self { engine, commands, hinted, has_handles: true, cleanups: Vec::new() }
    }

    fn command(&mut self, command: Command<K>) {
        let engine = &mut self.engine;
        match command {
            Command::Campaign { ticket, candidacy, reply } => {
                engine.begin_campaign(ticket, candidacy, reply);
            }
            Command::Withdraw { ticket } => engine.withdraw(ticket),
            Command::LookNow => {
                // Reset before the campaigns read: a hint from here on may announce a newer change.
                self.hinted.store(false, Ordering::Release);
                engine.hint_campaigns();
            }
            Command::HandBack { lease, reply } => engine.hand_back(lease, reply),
            Command::Dropped { lease } => engine.dropped(lease),
            Command::Shown { lease, epoch, incarnation, slot } => {
                engine.shown(lease, epoch, incarnation, slot);
            }
            Command::Cleanup { done } => {
                self.cleanups.push(done);
                engine.close();
            }
        }
    }

    /// Runs one round over all that is ready. Returns `true` if there may be more. No kind of event starves
    /// the others.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        self.engine.now = self.engine.env.clock.now();
        let timers = self.handle_some(cx, |task, _| {
            let Some(id) = task.engine.timers.due(task.engine.now) else { return false };
            task.engine.deliver(id, Event::Woken);
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

    /// Calls `handle_one` until it finds nothing and returns `false`, at most [`ROUND`] times. Returns `true`
    /// if there may be more.
    ///
    /// After each call, actors take their turns, and storage calls that are answered at once are delivered.
    /// An actor goes as far as it can while its data is in the processor's cache.
    fn handle_some(
        &mut self,
        cx: &mut Context<'_>,
        mut handle_one: impl FnMut(&mut Self, &mut Context<'_>) -> bool,
    ) -> bool {
        (0..ROUND).all(|_| {
            let handled = handle_one(self, cx);
            loop {
                while let Some(id) = self.engine.next_turn() {
                    self.engine.deliver(id, Event::MaySend);
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

impl<K: Key, C: Call> Engine<K, C> {
    /// Delivers an event to an actor, unless it has ended.
    fn deliver(&mut self, id: usize, event: Event) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        actor.received(&event);
        match &actor.kind {
            Kind::Campaigning(_) => self.campaign_event(id, event),
            Kind::Leading(_) => self.lease_event(id, event),
            Kind::Releasing(_) => self.release_event(id, event),
            Kind::Changing => {}
        }
    }

    fn answered(&mut self, (id, reply): (usize, Reply)) {
        // The process may have been stopped since the round began: the answer was not seen before now (I5).
        self.now = self.env.clock.now();
        self.deliver(id, Event::Answered(reply));
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
impl<K: Key, C> Unpin for EngineTask<K, C> {}

impl<K: Key, C: Call> Future for EngineTask<K, C> {
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
impl<K: Key, C> Drop for EngineTask<K, C> {
    fn drop(&mut self) {
        self.engine.lose_all(&Loss::EngineEnded);
    }
}
