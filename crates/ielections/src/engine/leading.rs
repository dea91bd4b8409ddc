//! Leases that are held: renewing, losing, handing back.

use super::{
    actor::{Event, Kind, Turn},
    call::{Call, Reply, Request},
    releasing::Releasing,
    task::Engine,
};
use crate::{
    Epoch, Incarnation, Key, Loss, ReleaseOutcome, Slot, Standing, Timing,
    documents::RenewalTurn,
    protocol::{Lease, LeaseEvent, LeaseStep, Release},
};
use std::mem;
use tokio::sync::oneshot;
use vvm_clock::Instant;
use vvm_deadman::Armed;

/// One held lease.
pub(super) struct Leading<K> {
    pub(super) key: K,
    pub(super) lease: Lease,
    pub(super) standing: Standing,
    /// Disarmed only by handing back (I4): dropped with the rest, it stays armed, and nobody can undo it.
    pub(super) armed: Armed,
    /// The record was seen not to be ours: nothing is left to delete.
    pub(super) gone: bool,
    /// The owner's word that work has stopped, waiting for the renewal in flight to be answered.
    pub(super) handing_back: Option<oneshot::Sender<ReleaseOutcome>>,
    pub(super) dropped: bool,
}

impl<K: Key, C: Call> Engine<K, C> {
    pub(super) fn lease_event(&mut self, id: usize, event: Event) {
        let event = match event {
            Event::Woken => LeaseEvent::Woken,
            Event::MaySend => LeaseEvent::MaySend,
            Event::Answered(Reply::Swapped(outcome)) => LeaseEvent::Swapped(outcome),
            Event::Answered(Reply::Read(outcome)) => LeaseEvent::Read(outcome),
            Event::Answered(Reply::Scanned(..) | Reply::Claimed(_) | Reply::Deleted(_)) => return,
        };
        self.step_lease(id, event);
        self.settle(id);
    }

    /// What the documents of a lease saw in its slot. The lease under this number may be another one by now.
    pub(super) fn shown(&mut self, id: usize, epoch: Epoch, incarnation: Incarnation, slot: Slot) {
        if let Some(actor) = self.actors.get(id)
            && let Kind::Leading(leading) = &actor.kind
            && leading.lease.held().is_of(incarnation, epoch)
        {
            self.step_lease(id, LeaseEvent::Shown(slot));
        }
    }

    fn step_lease(&mut self, id: usize, event: LeaseEvent) {
        let now = self.now;
        let jitter = self.jitter();
        let Kind::Leading(leading) = &mut self.actors[id].kind else { return };
        if leading.is_ending() {
            return;
        }
        match leading.lease.on(now, event, jitter) {
            LeaseStep::Sleep(until) => self.wake_at(id, until),
            LeaseStep::Send(loss_at) => {
                self.wake_at(id, loss_at);
                self.queue(id, Turn::Renewal);
            }
            LeaseStep::Swap { held, entry, timeout, loss_at } => {
                let key = leading.key.clone();
                let turn = RenewalTurn::of(&leading.standing);
                self.wake_at(id, loss_at);
                self.call(id, timeout, Request::Swap(key, held, entry, turn));
            }
            LeaseStep::ReadBack { timeout, loss_at } => {
                let key = leading.key.clone();
                self.wake_at(id, loss_at);
                self.call(id, timeout, Request::Get(key));
            }
            LeaseStep::Confirmed { sent_at, wake_at } => {
                leading.standing.confirm(sent_at);
                self.confirmed.push(id);
                self.wake_at(id, wake_at);
            }
            LeaseStep::Lost(loss) => self.lost(id, now, loss),
            LeaseStep::Over => {}
        }
    }

    /// Moves the deadlines of every lease confirmed in this round, in one go (I11).
    pub(super) fn tell_deadman(&mut self) {
        if self.confirmed.is_empty() {
            return;
        }
        let batch = self.confirmed.iter().filter_map(|&id| match &self.actors.get(id)?.kind {
            Kind::Leading(leading) => Some((&leading.armed, leading.standing.kill_at())),
            Kind::Campaigning(_) | Kind::Releasing(_) | Kind::Changing => None,
        });
        self.env.deadman.confirm(batch);
        self.confirmed.clear();
    }

    fn lost(&mut self, id: usize, now: Instant, loss: Loss) {
        let Kind::Leading(leading) = &mut self.actors[id].kind else { return };
        tracing::warn!(key = %leading.key, epoch = %leading.standing.epoch(), %loss, "leadership lost");
        leading.gone = loss.is_mismatch();
        if loss.tightens_deadline() {
            // Somebody else may lead already: work has no more time than it takes to stop (I4: only ever
            // earlier).
            let timing = Timing::of(leading.lease.held().ttl);
            self.env.deadman.tighten(&leading.armed, now.after(timing.stopping()));
        }
        leading.standing.lose(loss);
        self.wake_at(id, Instant::NEVER);
    }

    pub(super) fn hand_back(&mut self, id: usize, reply: oneshot::Sender<ReleaseOutcome>) {
        if let Some(actor) = self.actors.get_mut(id)
            && let Kind::Leading(leading) = &mut actor.kind
        {
            leading.standing.lose(Loss::HandedBack);
            leading.handing_back = Some(reply);
            self.settle(id);
        }
    }

    pub(super) fn dropped(&mut self, id: usize) {
        if let Some(actor) = self.actors.get_mut(id)
            && let Kind::Leading(leading) = &mut actor.kind
        {
            tracing::error!(
                key = %leading.key,
                epoch = %leading.standing.epoch(),
                "a leadership was dropped without being handed back: the process ends at the kill deadline"
            );
            leading.standing.lose(Loss::Dropped);
            leading.dropped = true;
            self.settle(id);
        }
    }

    /// Ends a lease whose owner is done with it, once no call of it is in flight: the renewal joined, then
    /// the deadman disarmed, then the record deleted (I6).
    fn settle(&mut self, id: usize) {
        let actor = &mut self.actors[id];
        let Kind::Leading(leading) = &actor.kind else { return };
        if !leading.is_ending() || actor.calling {
            return;
        }
        let Kind::Leading(leading) = mem::replace(&mut actor.kind, Kind::Changing) else { return };
        let leading = *leading;
        let Some(reply) = leading.handing_back else {
            // Dropped: the record is left to expire, and the deadline goes on ticking (I4).
            self.remove(id);
            return;
        };
        self.env.deadman.disarm(leading.armed);
        if leading.gone {
            let _ = reply.send(ReleaseOutcome::AlreadyGone);
            self.remove(id);
            return;
        }
        let held = leading.lease.held();
        let release = Release::begin(held.incarnation(), held.epoch, Timing::of(held.ttl));
        self.begin_release(id, Releasing { key: leading.key, release, reply: Some(reply) });
    }
}

impl<K> Leading<K> {
    /// Whether the owner is done with it.
    fn is_ending(&self) -> bool {
        self.dropped || self.handing_back.is_some()
    }
}
