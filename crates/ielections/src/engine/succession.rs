//! The successor of a leader, on both sides: [`LeaderSupport`] beside a lease, and [`Succeeding`] beside a campaign.

use super::{
    actors::{ActorEvent, Engine, Kind, LeaderSupport, Succeeding, Succession},
    calls::{CallPriority, Reply, StorageCall},
};
use crate::{
    Candidacy, Entry, Key, Loss, Slot, Standing, Timing,
    protocol::{
        Lease, LeaseEvent, ScanAnswer, WonSlot,
        successor::{Successor, SuccessorEvent, SuccessorStep, Support, SupportEvent, SupportStep},
    },
    successor::{Datagram, PeerMessage, SuccessorTerms},
};
use std::{mem, sync::Arc};
use vvm_clock::Instant;
use vvm_deadman::Subject;

impl<K: Key> Engine<K> {
    pub(super) fn peer_message(&mut self, id: usize, inbox: u64, message: PeerMessage) {
        self.read_clock();
        match self.actors.get(id).map(|actor| &actor.kind) {
            Some(Kind::Leading(leading))
                if leading.support.as_ref().is_some_and(|own| own.inbox == inbox) =>
            {
                let event = match message {
                    PeerMessage::Received(Datagram::ToLeader(message)) => SupportEvent::Received(message),
                    PeerMessage::InForce(kill_at) => SupportEvent::Tightened(kill_at),
                    PeerMessage::Stop => SupportEvent::Stop,
                    PeerMessage::Received(Datagram::ToStandby(_)) | PeerMessage::Found(_) => return,
                };
                self.step_support(id, event);
            }
            Some(Kind::Succeeding(succeeding)) if succeeding.inbox == inbox => {
                let event = match message {
                    PeerMessage::Found(entry) => return self.found_leader(id, entry),
                    PeerMessage::Received(Datagram::ToStandby(ping)) => SuccessorEvent::Received(ping),
                    PeerMessage::Stop => SuccessorEvent::Stop,
                    PeerMessage::Received(Datagram::ToLeader(_)) | PeerMessage::InForce(_) => return,
                };
                self.step_successor(id, event);
            }
            _ => {}
        }
    }

    pub(super) fn begin_support(
        &mut self,
        id: usize,
        lease: &Lease,
        standing: &Standing,
        terms: SuccessorTerms<K>,
    ) -> Box<LeaderSupport<K>> {
        let SuccessorTerms { period, link } = terms;
        let (inbox, delivery) = self.inbox(id);
        standing.state().set_support_timing(Timing::support(period));
        let support = Support::begin(lease, period, self.now);
        link.connect(delivery);
        let (wakes_at, lease_wakes_at) = (Instant::NEVER, lease.wake_at());
        Box::new(LeaderSupport { inbox, support, period, link, armed: None, wakes_at, lease_wakes_at })
    }

    /// Moves the wake-up of a lease. That of its support stays.
    pub(super) fn wake_lease(&mut self, id: usize, at: Instant) {
        let mut wake_at = at;
        if let Some(actor) = self.actors.get_mut(id)
            && let Kind::Leading(leading) = &mut actor.kind
            && let Some(support) = &mut leading.support
        {
            support.lease_wakes_at = at;
            wake_at = at.min(support.wakes_at);
        }
        self.wake_at(id, wake_at);
    }

    /// Delivers an event to the support of a leader, if it has one, and carries out what follows.
    pub(super) fn step_support(&mut self, id: usize, mut event: SupportEvent) {
        loop {
            let now = self.now;
            let Kind::Leading(leading) = &mut self.actors[id].kind else { return };
            let is_ending = leading.is_ending();
            let leading = &mut **leading;
            let Some(support) = leading.support.as_deref_mut().filter(|_| !is_ending) else { return };
            let state = leading.standing.state();
            match support.support.on(now, event, &mut leading.lease) {
                SupportStep::Sleep(until) => {
                    support.wakes_at = until;
                    let wake_at = until.min(support.lease_wakes_at);
                    return self.wake_at(id, wake_at);
                }
                SupportStep::Send(ping) => support.link.send(Datagram::ToStandby(ping)),
                SupportStep::Arm(kill_at) => self.arm_support(id, kill_at),
                SupportStep::Extend(kill_at) => {
                    if let Some(armed) = &support.armed {
                        self.env.deadman.confirm([(armed, kill_at)]);
                        state.set_support_kill_at(kill_at);
                    }
                }
                SupportStep::Disarm(why) => {
                    if let Some(armed) = support.armed.take() {
                        self.env.deadman.disarm(armed);
                    }
                    state.set_support_kill_at(Instant::NEVER);
                    why.into_iter().for_each(|why| support.link.withdrawn(why));
                }
                SupportStep::Renew => self.step_lease(id, LeaseEvent::Due),
                SupportStep::MayStop => support.link.may_stop(),
                SupportStep::Lost => {
                    let period = support.period.get();
                    // A ping has been due for long: this process did not run.
                    let is_late = now >= support.wakes_at.after(period / 4);
                    let loss = if is_late { Loss::Suspended } else { Loss::SupportEnded { period } };
                    return self.lost(id, now, loss);
                }
            }
            event = SupportEvent::Woken;
        }
    }

    /// Enters the deadline beside that of the TTL. If the system refuses it, nothing is confirmed and no standby named.
    fn arm_support(&mut self, id: usize, kill_at: Instant) {
        let Kind::Leading(leading) = &self.actors[id].kind else { return };
        let (key, held) = (leading.key.clone(), leading.lease.held());
        let (holder, epoch) = (held.holder.shared(), held.epoch.get());
        let subject = Subject { key: self.text(&key), holder, epoch };
        let armed = self.env.deadman.arm(subject, kill_at);
        let Kind::Leading(leading) = &mut self.actors[id].kind else { return };
        let (Some(support), Ok(armed)) = (&mut leading.support, armed) else { return };
        support.armed = Some(armed);
        leading.standing.state().set_support_kill_at(kill_at);
        support.link.tighten(kill_at);
    }
}

impl<K: Key> Engine<K> {
    pub(super) fn begin_succession(
        &mut self,
        ticket: u64,
        candidacy: &Candidacy<K>,
        terms: SuccessorTerms<K>,
    ) -> Option<Succession<K>> {
        let key = candidacy.slots.first()?.clone();
        let (holder, ttl) = (candidacy.terms.holder.clone(), candidacy.terms.ttl);
        let (entropy, wall) = (Arc::clone(&self.env.entropy), Arc::clone(&self.env.wall));
        let successor = Successor::begin(holder, ttl, entropy, wall);
        let actor = self.add(Kind::Changing);
        let (inbox, delivery) = self.inbox(actor);
        let link = Arc::clone(&terms.link);
        link.connect(delivery);
        let (period, leader, offers_at) = (terms.period.get(), None, Instant::NEVER);
        let campaign = Some(ticket);
        let succeeding = Succeeding { inbox, successor, key, link, campaign, period, leader, offers_at };
        self.actors[actor].kind = Kind::Succeeding(Box::new(succeeding));
        Some(Succession { terms, actor })
    }

    pub(super) fn show_scan_to_successor(&mut self, campaign: usize, scanned: &ScanAnswer) {
        let Kind::Campaigning(campaigning) = &self.actors[campaign].kind else { return };
        let Some(Succession { terms, actor }) = &campaigning.succession else { return };
        let actor = *actor;
        let entry: Option<&Entry> = scanned.seen.first().and_then(Option::as_ref).and_then(Slot::entry);
        match entry.filter(|entry| terms.link.find_leader(&campaigning.slots[0], entry)) {
            Some(entry) => self.found_leader(actor, entry.clone()),
            // The look failed, or its leader is not known: no offer until one shows a known leader (N3).
            None => {
                if let Kind::Succeeding(succeeding) = &mut self.actors[actor].kind {
                    succeeding.leader = None;
                }
            }
        }
    }

    /// Offers itself now, and every P from now on: where the storage announces releases, looks are up to 10 s apart. At
    /// most four times in a P, however often the record is found.
    fn found_leader(&mut self, id: usize, entry: Entry) {
        let Kind::Succeeding(succeeding) = &mut self.actors[id].kind else { return };
        let is_same = |leader: &Entry| entry.is_of(leader.incarnation(), leader.epoch);
        let was_found = succeeding.leader.replace(entry.clone()).is_some_and(|leader| is_same(&leader));
        if was_found && self.now.until(succeeding.offers_at) > succeeding.period / 4 * 3 {
            return;
        }
        succeeding.offers_at = self.now.after(succeeding.period);
        self.step_successor(id, SuccessorEvent::Found(entry));
    }

    pub(super) fn successor_event(&mut self, id: usize, event: ActorEvent) {
        let event = match event {
            ActorEvent::Woken => {
                let Kind::Succeeding(succeeding) = &self.actors[id].kind else { return };
                match &succeeding.leader {
                    Some(leader) if self.now >= succeeding.offers_at => {
                        let leader = leader.clone();
                        return self.found_leader(id, leader);
                    }
                    Some(_) | None => SuccessorEvent::Woken,
                }
            }
            ActorEvent::MaySend => SuccessorEvent::MaySend,
            ActorEvent::Answered(Reply::Read(outcome)) => SuccessorEvent::Read(outcome),
            ActorEvent::Answered(Reply::Claimed(outcome)) => SuccessorEvent::Claimed(outcome),
            ActorEvent::Answered(Reply::Swapped(outcome)) => SuccessorEvent::Swapped(outcome),
            ActorEvent::Answered(Reply::Scanned(_) | Reply::Deleted(_)) => return,
        };
        self.step_successor(id, event);
    }

    fn step_successor(&mut self, id: usize, mut event: SuccessorEvent) {
        loop {
            let now = self.now;
            let Kind::Succeeding(succeeding) = &mut self.actors[id].kind else { return };
            let step = succeeding.successor.on(now, event);
            let (key, campaign) = (succeeding.key.clone(), succeeding.campaign);
            let (timeout, request) = match step {
                SuccessorStep::Won(entry, sent_at) => {
                    let won = WonSlot { slot: 0, entry, sent_at };
                    return self.lead_as_successor(id, campaign, key, won);
                }
                _ if campaign.is_none() => return self.abandon_idle_succession(id),
                SuccessorStep::Sleep(until) => {
                    let offers_at =
                        succeeding.leader.as_ref().map_or(Instant::NEVER, |_| succeeding.offers_at);
                    return self.wake_at(id, until.min(offers_at));
                }
                // Seconds count, as for a renewal.
                SuccessorStep::Send => return self.queue(id, CallPriority::Renewal),
                SuccessorStep::Reply(message) => {
                    succeeding.link.send(Datagram::ToLeader(message));
                    event = SuccessorEvent::Woken;
                    continue;
                }
                SuccessorStep::MayStop => {
                    succeeding.link.may_stop();
                    let campaign = campaign.and_then(|ticket| self.tickets.get(&ticket)).copied();
                    if campaign.is_some_and(|campaign| self.fail_campaign(campaign)) {
                        return;
                    }
                    event = SuccessorEvent::Woken;
                    continue;
                }
                SuccessorStep::Read(timeout) => (timeout, StorageCall::Get(key)),
                SuccessorStep::TakeOver(observed, entry, timeout) => {
                    (timeout, StorageCall::ClaimExpired(key, observed, entry))
                }
                SuccessorStep::Renew(held, entry, timeout) => {
                    (timeout, StorageCall::Renew(key, held, entry, None))
                }
            };
            self.wake_at(id, Instant::NEVER);
            return self.call(id, timeout, request);
        }
    }

    /// Leads with the actor of the successor, which has no call in flight. That of the campaign may have one, whose
    /// answer must not reach the lease.
    fn lead_as_successor(&mut self, id: usize, ticket: Option<u64>, key: K, won: WonSlot) {
        self.actors[id].kind = Kind::Changing;
        let campaign = ticket.and_then(|ticket| self.tickets.get(&ticket)).copied();
        let is_calling = campaign.is_some_and(|campaign| self.actors[campaign].calling);
        let Some(Kind::Campaigning(campaigning)) =
            campaign.map(|campaign| mem::replace(&mut self.actors[campaign].kind, Kind::Changing))
        else {
            return self.release_unused(id, key, &won.entry);
        };
        let (mut campaigning, Some(campaign)) = (campaigning, campaign) else { return };
        if let Some(reading) = &campaigning.reading {
            reading.abort();
        }
        let terms = campaigning.succession.take().map(|succession| succession.terms);
        terms.iter().for_each(|terms| terms.link.has_succeeded());
        self.lead(id, key, won, &mut campaigning, terms);
        self.actors[campaign].kind = Kind::Campaigning(campaigning);
        if !is_calling {
            self.abandon(campaign);
        }
    }

    /// A campaign is out of time. If its successor is named, it asks to be withdrawn first (N7), for at most P.
    pub(super) fn withdraw_before_end(&mut self, campaign: usize) -> bool {
        let Kind::Campaigning(campaigning) = &self.actors[campaign].kind else { return false };
        let Some(Succession { terms, actor }) = &campaigning.succession else { return false };
        let (id, until) = (*actor, self.now.after(terms.period.get()));
        let Kind::Succeeding(succeeding) = &self.actors[id].kind else { return false };
        let is_named = succeeding.successor.named_by(self.now).is_some();
        if is_named {
            self.wake_at(campaign, until);
            self.step_successor(id, SuccessorEvent::Stop);
        }
        is_named
    }

    /// Ends a successor with its campaign. Waits for the answer of a write in flight first.
    pub(super) fn end_succession(&mut self, succession: Option<Succession<K>>) {
        let Some(Succession { actor: id, .. }) = succession else { return };
        let Some(actor) = self.actors.get_mut(id) else { return };
        let Kind::Succeeding(succeeding) = &mut actor.kind else { return };
        succeeding.campaign = None;
        self.abandon_idle_succession(id);
    }

    /// Deletes the records that its unresolved attempts may have left. Does nothing while a call is in flight, whatever
    /// datagram or instant comes meanwhile: another actor with this number would get the answer.
    fn abandon_idle_succession(&mut self, id: usize) {
        if self.actors[id].calling {
            return;
        }
        let Kind::Succeeding(succeeding) = mem::replace(&mut self.actors[id].kind, Kind::Changing) else {
            return;
        };
        let Succeeding { successor, key, .. } = *succeeding;
        self.remove(id);
        for entry in successor.abandon() {
            let id = self.add(Kind::Changing);
            self.release_unused(id, key.clone(), &entry);
        }
    }
}
