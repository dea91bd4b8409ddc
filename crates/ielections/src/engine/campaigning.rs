//! How the engine carries out the steps of a campaign, until it has won a slot or is abandoned.

use super::{
    actors::{ActorEvent, Campaigning, Engine, HeldLease, KeyPartition, Kind, Releasing},
    calls::{CallPriority, CampaignResult, GrantedLeadership, Reply, StorageCall},
};
use crate::{
    AcquireError, Candidacy, Entry, Key, Leadership, Standing, Timing,
    protocol::{Campaign, CampaignEvent, CampaignStep, Lease, Release, WonSlot},
    successor::SuccessorTerms,
};
use std::{
    mem,
    sync::{Arc, Weak},
};
use tokio::sync::oneshot;
use vvm_clock::Instant;
use vvm_deadman::Subject;

impl<K: Key> Engine<K> {
    pub(super) fn begin_campaign(
        &mut self,
        ticket: u64,
        candidacy: Candidacy<K>,
        successor: Option<SuccessorTerms<K>>,
        reply: oneshot::Sender<CampaignResult<K>>,
    ) {
        if self.closing {
            drop(reply.send(Err(AcquireError::Closing)));
            return;
        }
        let succession = successor.and_then(|terms| self.begin_succession(ticket, &candidacy, terms));
        let holder = candidacy.terms.holder.shared();
        let entropy = Arc::clone(&self.env.entropy);
        let wall = Arc::clone(&self.env.wall);
        let campaign = Campaign::begin(candidacy.terms, candidacy.slots.len(), self.now, entropy, wall);
        let slots = candidacy.slots.into();
        let (reply, reading, failure) = (Some(reply), None, None);
        let campaigning =
            Campaigning { ticket, campaign, slots, holder, reply, reading, succession, failure };
        let id = self.add(Kind::Campaigning(Box::new(campaigning)));
        self.tickets.insert(ticket, id);
        self.step_campaign(id, CampaignEvent::Woken);
    }

    /// Ends a campaign and aborts its read. If a call is in flight, the actor ends with its answer.
    pub(super) fn withdraw(&mut self, ticket: u64) {
        let Some(&id) = self.tickets.get(&ticket) else { return };
        let actor = &mut self.actors[id];
        let Kind::Campaigning(campaigning) = &mut actor.kind else { return };
        if let Some(reply) = campaigning.reply.take() {
            drop(reply.send(Err(AcquireError::Closing)));
        }
        if let Some(reading) = &campaigning.reading {
            reading.abort();
        }
        let succession = campaigning.succession.take();
        if !actor.calling {
            self.abandon(id);
        }
        self.end_succession(succession);
    }

    pub(super) fn hint_campaigns(&mut self) {
        let ids: Vec<usize> = self.tickets.values().copied().collect();
        for id in ids {
            if let Kind::Campaigning(campaigning) = &self.actors[id].kind
                && campaigning.reply.is_some()
            {
                self.step_campaign(id, CampaignEvent::Hinted);
            }
        }
    }

    pub(super) fn campaign_event(&mut self, id: usize, event: ActorEvent) {
        let event = match event {
            ActorEvent::Woken => CampaignEvent::Woken,
            ActorEvent::MaySend => CampaignEvent::MaySend,
            ActorEvent::Answered(Reply::Scanned(scanned)) => {
                self.show_scan_to_successor(id, &scanned);
                CampaignEvent::Scanned(scanned)
            }
            ActorEvent::Answered(Reply::Read(outcome)) => CampaignEvent::Read(outcome),
            ActorEvent::Answered(Reply::Claimed(outcome)) => CampaignEvent::Claimed(outcome),
            ActorEvent::Answered(Reply::Swapped(outcome)) => CampaignEvent::TakenOver(outcome),
            ActorEvent::Answered(Reply::Deleted(outcome)) => CampaignEvent::Deleted(outcome),
        };
        self.step_campaign(id, event);
    }

    fn step_campaign(&mut self, id: usize, event: CampaignEvent) {
        let now = self.now;
        let Kind::Campaigning(campaigning) = &mut self.actors[id].kind else { return };
        if campaigning.failure.is_some() {
            if matches!(event, CampaignEvent::Woken) {
                self.fail_campaign(id);
            }
            return;
        }
        let step = campaigning.campaign.on(now, event);
        let withdrawn = campaigning.reply.is_none();
        let key = |slot: usize| campaigning.slots[slot].clone();
        let (request, timeout) = match step {
            CampaignStep::Won(won) => return self.won(id, won),
            CampaignStep::Failed(error) => {
                let is_out_of_time = matches!(error, AcquireError::TimedOut { .. });
                campaigning.failure = Some(error);
                if withdrawn || !is_out_of_time || !self.withdraw_before_end(id) {
                    self.fail_campaign(id);
                }
                return;
            }
            _ if withdrawn => return self.abandon(id),
            CampaignStep::Sleep(until) => return self.wake_at(id, until),
            CampaignStep::Send => return self.queue(id, CallPriority::Other),
            CampaignStep::Scan(timeout) => (StorageCall::Scan(Arc::clone(&campaigning.slots)), timeout),
            CampaignStep::Read(slot, timeout) => (StorageCall::Get(key(slot)), timeout),
            CampaignStep::Insert(slot, vacant, entry, timeout) => {
                (StorageCall::ClaimVacant(key(slot), vacant, entry), timeout)
            }
            CampaignStep::TakeOver(slot, observed, entry, timeout) => {
                (StorageCall::ClaimExpired(key(slot), observed, entry), timeout)
            }
            CampaignStep::Renew(slot, held, entry, timeout) => {
                (StorageCall::Renew(key(slot), held, entry, None), timeout)
            }
            CampaignStep::Delete(slot, incarnation, epoch, timeout) => {
                (StorageCall::Release(key(slot), incarnation, epoch), timeout)
            }
        };
        self.call(id, timeout, request);
    }

    /// Answers the caller of a campaign that has failed, and ends it. Returns `false` if it has not failed.
    pub(super) fn fail_campaign(&mut self, id: usize) -> bool {
        let Some(Kind::Campaigning(campaigning)) = self.actors.get_mut(id).map(|actor| &mut actor.kind)
        else {
            return false;
        };
        let Some(failure) = campaigning.failure.take() else { return false };
        if let Some(reply) = campaigning.reply.take() {
            drop(reply.send(Err(failure)));
        }
        self.abandon(id);
        true
    }

    /// Arms the deadman, and then answers the caller (I4).
    fn won(&mut self, id: usize, won: WonSlot) {
        let Some(mut campaigning) = self.end_campaign(id) else { return };
        let key = campaigning.slots[won.slot].clone();
        let terms = campaigning.succession.as_ref().map(|succession| succession.terms.clone());
        self.end_succession(campaigning.succession.take());
        self.lead(id, key, won, &mut campaigning, terms);
    }

    /// Makes the actor the leader of a slot that was won. If the caller is gone or the deadman refuses, releases it.
    pub(super) fn lead(
        &mut self,
        id: usize,
        key: K,
        won: WonSlot,
        campaigning: &mut Campaigning<K>,
        terms: Option<SuccessorTerms<K>>,
    ) {
        let WonSlot { entry, sent_at, .. } = won;
        let (Some(reply), Some(commands)) = (campaigning.reply.take(), self.commands.upgrade()) else {
            return self.release_unused(id, key, &entry);
        };
        let holder = Arc::clone(&campaigning.holder);
        let subject = Subject { key: self.text(&key), holder, epoch: entry.epoch.get() };
        let armed = match self.env.deadman.arm(subject, Timing::new(entry.ttl).kill_at(sent_at)) {
            Ok(armed) => armed,
            Err(error) => {
                drop(reply.send(Err(AcquireError::Deadman(error))));
                return self.release_unused(id, key, &entry);
            }
        };
        let standing = self.standing(id, &key, &entry, sent_at);
        let lease = Lease::begin(entry, sent_at, self.jitter());
        let wake_at = lease.wake_at();
        let support = terms.map(|terms| self.begin_support(id, &lease, &standing, terms));
        self.actors[id].kind = Kind::Leading(Box::new(HeldLease {
            key: key.clone(),
            lease,
            standing: standing.clone(),
            armed,
            gone: false,
            handing_back: None,
            dropped: false,
            support,
        }));
        self.wake_at(id, wake_at);
        // A grant that does not arrive hands itself back.
        drop(reply.send(Ok((key, GrantedLeadership::new(Leadership::new(standing, id, commands))))));
    }

    fn standing(&self, id: usize, key: &K, entry: &Entry, sent_at: Instant) -> Standing {
        let clock = Arc::clone(&self.env.clock);
        let (storage, commands) = (Arc::downgrade(&self.storage), Weak::clone(&self.commands));
        Standing::new(entry, sent_at, clock, KeyPartition { key: key.clone(), storage, lease: id, commands })
    }

    /// Ends the campaign and deletes records that its unresolved attempts may have left.
    pub(super) fn abandon(&mut self, id: usize) {
        let Some(mut campaigning) = self.end_campaign(id) else { return };
        self.end_succession(campaigning.succession.take());
        let left = campaigning.campaign.abandon();
        self.remove(id);
        let Some((slot, entries)) = left else { return };
        for entry in entries {
            let id = self.add(Kind::Changing);
            self.release_unused(id, campaigning.slots[slot].clone(), &entry);
        }
    }

    /// Releases a record under which no work was started.
    pub(super) fn release_unused(&mut self, id: usize, key: K, entry: &Entry) {
        let release = Release::begin(entry.incarnation(), entry.epoch, Timing::new(entry.ttl));
        self.begin_release(id, Releasing { key, release, reply: None });
    }

    fn end_campaign(&mut self, id: usize) -> Option<Box<Campaigning<K>>> {
        match mem::replace(&mut self.actors[id].kind, Kind::Changing) {
            Kind::Campaigning(campaigning) => {
                self.tickets.remove(&campaigning.ticket);
                Some(campaigning)
            }
            other => {
                self.actors[id].kind = other;
                None
            }
        }
    }
}
