//! What the engine drives, one to a campaign, lease or release; when each wants to be woken, and whose turn
//! it is to call the storage. What waking or a turn means stands in `campaigning`, `leading` and `releasing`.

use super::{
    call::{Call, Reply},
    campaigning::Campaigning,
    leading::Leading,
    releasing::Releasing,
    task::Engine,
};
use crate::Key;
use std::mem;
use vvm_clock::Instant;

/// One campaign, lease or release.
pub(super) struct Actor<K> {
    pub(super) wake_at: Instant,
    /// Where it stands in the timer queue; the same but within a round.
    pub(super) queued_for: Instant,
    queued: bool,
    /// A call of this actor has not been answered, or its answer not been delivered.
    pub(super) calling: bool,
    pub(super) kind: Kind<K>,
}

pub(super) enum Kind<K> {
    Campaigning(Box<Campaigning<K>>),
    Leading(Box<Leading<K>>),
    Releasing(Box<Releasing<K>>),
    /// Between two kinds, within one step.
    Changing,
}

/// What an actor is told.
pub(super) enum Event {
    /// The instant that it wanted to be woken at has come.
    Woken,
    /// It is its turn to call the storage.
    MaySend,
    /// Its call was answered.
    Answered(Reply),
}

/// Which queue an actor waits in for its turn to call the storage.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    Renewal,
    Other,
}

impl<K: Key, C: Call> Engine<K, C> {
    pub(super) fn add(&mut self, kind: Kind<K>) -> usize {
        let never = Instant::NEVER;
        self.actors.insert(Actor { wake_at: never, queued_for: never, queued: false, calling: false, kind })
    }

    /// Tells the actor what has happened. One that has ended meanwhile needs no news.
    pub(super) fn deliver(&mut self, id: usize, event: Event) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        match &event {
            Event::Woken => (actor.wake_at, actor.queued_for) = (Instant::NEVER, Instant::NEVER),
            Event::MaySend => {}
            Event::Answered(_) => actor.calling = false,
        }
        match &actor.kind {
            Kind::Campaigning(_) => self.campaign_event(id, event),
            Kind::Leading(_) => self.lease_event(id, event),
            Kind::Releasing(_) => self.release_event(id, event),
            Kind::Changing => {}
        }
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
            // It may be gone, and even another one under the same number, which is right either way.
            if let Some(actor) = self.actors.get_mut(id)
                && actor.queued_for != actor.wake_at
            {
                self.timers.shift(id, actor.queued_for, actor.wake_at);
                actor.queued_for = actor.wake_at;
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

    /// The next actor whose turn it is; renewals first.
    pub(super) fn next_turn(&mut self) -> Option<usize> {
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
}
