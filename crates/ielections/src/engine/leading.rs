//! How the engine carries out the steps of a lease, and of the release after it.

use super::{
    actors::{ActorEvent, Engine, Kind, Releasing},
    calls::{CallPriority, Reply, StorageCall},
};
use crate::{
    Epoch, Incarnation, Key, Loss, ReleaseOutcome, Timing,
    protocol::{LeaseEvent, LeaseStep, Release, ReleaseEvent, ReleaseStep, successor::SupportEvent},
};
use std::mem;
use tokio::sync::oneshot;
use vvm_clock::Instant;

impl<K: Key> Engine<K> {
    pub(super) fn lease_event(&mut self, id: usize, event: ActorEvent) {
        let is_woken = matches!(event, ActorEvent::Woken);
        let event = match event {
            ActorEvent::Woken => LeaseEvent::Woken,
            ActorEvent::MaySend => LeaseEvent::MaySend,
            ActorEvent::Answered(Reply::Swapped(outcome)) => LeaseEvent::Renewed(outcome),
            ActorEvent::Answered(Reply::Read(outcome)) => LeaseEvent::Read(outcome),
            ActorEvent::Answered(Reply::Scanned(..) | Reply::Claimed(_) | Reply::Deleted(_)) => return,
        };
        self.step_lease(id, event);
        if is_woken {
            self.step_support(id, SupportEvent::Woken);
        }
        self.settle(id);
    }

    /// Handles what a call for the documents of a lease showed. `id` may belong to another lease by now.
    pub(super) fn take_shown(
        &mut self,
        id: usize,
        epoch: Epoch,
        incarnation: Incarnation,
        shown: LeaseEvent,
    ) {
        if let Some(actor) = self.actors.get(id)
            && let Kind::Leading(leading) = &actor.kind
            && leading.lease.held().is_of(incarnation, epoch)
        {
            self.step_lease(id, shown);
        }
    }

    pub(super) fn step_lease(&mut self, id: usize, event: LeaseEvent) {
        let now = self.now;
        let jitter = self.jitter();
        let Kind::Leading(leading) = &mut self.actors[id].kind else { return };
        if leading.is_ending() {
            return;
        }
        match leading.lease.on(now, event, jitter) {
            LeaseStep::Sleep(until) => self.wake_lease(id, until),
            LeaseStep::Send(loss_at) => {
                self.wake_lease(id, loss_at);
                self.queue(id, CallPriority::Renewal);
            }
            LeaseStep::Renew { held, entry, timeout, loss_at } => {
                let key = leading.key.clone();
                let turn = leading.standing.renewal_turn();
                self.wake_lease(id, loss_at);
                self.call(id, timeout, StorageCall::Renew(key, held, entry, turn));
            }
            LeaseStep::ReadBack { timeout, loss_at } => {
                let key = leading.key.clone();
                self.wake_lease(id, loss_at);
                self.call(id, timeout, StorageCall::Get(key));
            }
            LeaseStep::Confirmed { sent_at, version, wake_at } => {
                leading.standing.state().confirm(sent_at);
                self.confirmed.push(id);
                self.wake_lease(id, wake_at);
                self.step_support(id, SupportEvent::Confirmed(version));
            }
            LeaseStep::Lost(loss) => self.lost(id, now, loss),
            LeaseStep::Over => {}
        }
    }

    /// Moves the kill deadlines of all leases confirmed in this round, in one call (I11).
    pub(super) fn confirm_deadlines(&mut self) {
        if self.confirmed.is_empty() {
            return;
        }
        let batch = self.confirmed.iter().filter_map(|&id| match &self.actors.get(id)?.kind {
            Kind::Leading(leading) => Some((&leading.armed, leading.standing.state().lease_kill_at())),
            Kind::Campaigning(_) | Kind::Releasing(_) | Kind::Succeeding(_) | Kind::Changing => None,
        });
        self.env.deadman.confirm(batch);
        self.confirmed.clear();
    }

    pub(super) fn lost(&mut self, id: usize, now: Instant, loss: Loss) {
        let Kind::Leading(leading) = &mut self.actors[id].kind else { return };
        leading.gone = loss.is_mismatch();
        if loss.tightens_deadline() {
            // Another process may lead already: the work gets just the time to stop (I4: only ever earlier).
            let timing = Timing::new(leading.lease.held().ttl);
            let kill_at = now.after(timing.stopping());
            self.env.deadman.tighten(&leading.armed, kill_at);
            leading.standing.state().tighten(kill_at);
        }
        leading.standing.state().lose(loss.clone());
        let (key, epoch) = (leading.key.clone(), leading.standing.epoch());
        self.wake_lease(id, Instant::NEVER);
        self.step_support(id, SupportEvent::LeaseLost);
        // Last: a subscriber may block or panic.
        tracing::warn!(%key, %epoch, %loss, "leadership lost");
    }

    pub(super) fn hand_back(&mut self, id: usize, reply: oneshot::Sender<ReleaseOutcome>) {
        if let Some(actor) = self.actors.get_mut(id)
            && let Kind::Leading(leading) = &mut actor.kind
        {
            leading.standing.state().lose(Loss::HandedBack);
            leading.handing_back = Some(reply);
            // Before the TTL's deadline, so that none later than that is ever in force (I3). It does not wait for a
            // call in flight, whose answer may take longer than the support period.
            if let Some(armed) = leading.support.as_mut().and_then(|support| support.armed.take()) {
                self.env.deadman.disarm(armed);
            }
            self.settle(id);
        }
    }

    pub(super) fn dropped(&mut self, id: usize) {
        if let Some(actor) = self.actors.get_mut(id)
            && let Kind::Leading(leading) = &mut actor.kind
        {
            leading.standing.state().lose(Loss::Dropped);
            leading.dropped = true;
            let (key, epoch) = (leading.key.clone(), leading.standing.epoch());
            self.settle(id);
            tracing::error!(
                %key, %epoch,
                "a leadership was dropped without being handed back: the process ends at the kill deadline"
            );
        }
    }

    /// Ends a lease that was handed back or dropped. The order: the last answer, the disarmed deadman, the delete (I6).
    fn settle(&mut self, id: usize) {
        let actor = &mut self.actors[id];
        let Kind::Leading(leading) = &actor.kind else { return };
        if !leading.is_ending() || actor.calling {
            return;
        }
        let Kind::Leading(leading) = mem::replace(&mut actor.kind, Kind::Changing) else { return };
        let leading = *leading;
        let Some(reply) = leading.handing_back else {
            // Dropped: the record is left to expire, and the deadline stays armed (I4).
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
        let release = Release::begin(held.incarnation(), held.epoch, Timing::new(held.ttl));
        self.begin_release(id, Releasing { key: leading.key, release, reply: Some(reply) });
    }
}

impl<K: Key> Engine<K> {
    pub(super) fn begin_release(&mut self, id: usize, releasing: Releasing<K>) {
        self.wake_at(id, Instant::NEVER);
        if let Some(actor) = self.actors.get_mut(id) {
            actor.kind = Kind::Releasing(Box::new(releasing));
            self.queue(id, CallPriority::Other);
        }
    }

    pub(super) fn release_event(&mut self, id: usize, event: ActorEvent) {
        let event = match event {
            ActorEvent::Woken => ReleaseEvent::Woken,
            ActorEvent::MaySend => ReleaseEvent::MaySend,
            ActorEvent::Answered(Reply::Deleted(outcome)) => ReleaseEvent::Deleted(outcome),
            ActorEvent::Answered(_) => return,
        };
        let now = self.now;
        let Kind::Releasing(releasing) = &mut self.actors[id].kind else { return };
        match releasing.release.on(now, event) {
            ReleaseStep::Sleep(until) => self.wake_at(id, until),
            ReleaseStep::Send => self.queue(id, CallPriority::Other),
            ReleaseStep::Delete { incarnation, epoch, timeout } => {
                let key = releasing.key.clone();
                self.call(id, timeout, StorageCall::Release(key, incarnation, epoch));
            }
            ReleaseStep::Done(outcome) => {
                if let Some(reply) = releasing.reply.take() {
                    let _ = reply.send(outcome);
                }
                self.remove(id);
            }
        }
    }
}
