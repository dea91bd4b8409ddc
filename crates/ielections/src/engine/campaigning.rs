//! Candidates: from the command to the leadership, or to nothing left behind.

use super::{
    Answer, Grant, Hold, Reports,
    actor::{Event, Kind, Turn},
    call::{Call, Reply, Request},
    leading::Leading,
    releasing::Releasing,
    task::Engine,
};
use crate::{
    AcquireError, Candidacy, Entry, Key, Standing, Timing,
    documents::{KeyPartition, NoPartition},
    protocol::{Campaign, CampaignEvent, CampaignStep, Lease, Release, Won},
};
use futures_util::future::{AbortHandle, AbortRegistration};
use std::{
    mem,
    sync::{Arc, Weak},
};
use tokio::sync::oneshot;
use vvm_clock::Instant;
use vvm_deadman::Subject;

/// One candidate.
pub(super) struct Campaigning<K> {
    ticket: u64,
    campaign: Campaign,
    slots: Arc<[K]>,
    holder: Arc<str>,
    reply: Option<oneshot::Sender<Answer<K>>>,
    /// Ends the last read that was not answered at once, if it is still in flight.
    reading: Option<AbortHandle>,
}

impl<K: Key, C: Call> Engine<K, C> {
    pub(super) fn begin_campaign(
        &mut self,
        ticket: u64,
        candidacy: Candidacy<K>,
        reply: oneshot::Sender<Answer<K>>,
    ) {
        if self.closing {
            // A caller that no longer waits needs no answer.
            drop(reply.send(Err(AcquireError::Closing)));
            return;
        }
        let holder = candidacy.terms.holder.shared();
        let entropy = Arc::clone(&self.env.entropy);
        let wall = Arc::clone(&self.env.wall);
        let campaign = Campaign::begin(candidacy.terms, candidacy.slots.len(), self.now, entropy, wall);
        let slots = candidacy.slots.into();
        let campaigning = Campaigning { ticket, campaign, slots, holder, reply: Some(reply), reading: None };
        let id = self.add(Kind::Campaigning(Box::new(campaigning)));
        self.tickets.insert(ticket, id);
        self.step_campaign(id, CampaignEvent::Woken);
    }

    /// Ends a campaign whose caller is gone, or that is to end. A write in flight is answered first.
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
        if !actor.calling {
            self.abandon(id);
        }
    }

    /// Passes a hint on to every campaign that somebody still waits for.
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

    pub(super) fn campaign_event(&mut self, id: usize, event: Event) {
        let event = match event {
            Event::Woken => CampaignEvent::Woken,
            Event::MaySend => CampaignEvent::MaySend,
            Event::Answered(Reply::Scanned(seen, outcome)) => CampaignEvent::Scanned(seen, outcome),
            Event::Answered(Reply::Read(outcome)) => CampaignEvent::Read(outcome),
            Event::Answered(Reply::Claimed(outcome)) => CampaignEvent::Claimed(outcome),
            Event::Answered(Reply::Swapped(outcome)) => CampaignEvent::Swapped(outcome),
            Event::Answered(Reply::Deleted(_)) => return,
        };
        self.step_campaign(id, event);
    }

    fn step_campaign(&mut self, id: usize, event: CampaignEvent) {
        let now = self.now;
        let Kind::Campaigning(campaigning) = &mut self.actors[id].kind else { return };
        let step = campaigning.campaign.on(now, event);
        let withdrawn = campaigning.reply.is_none();
        let key = |slot: usize| campaigning.slots[slot].clone();
        let (request, timeout) = match step {
            CampaignStep::Won(won) => return self.won(id, won),
            CampaignStep::Failed(error) => {
                if let Some(reply) = campaigning.reply.take() {
                    drop(reply.send(Err(error)));
                }
                return self.abandon(id);
            }
            // An acquisition that nobody waits for any more goes no further.
            _ if withdrawn => return self.abandon(id),
            CampaignStep::Sleep(until) => return self.wake_at(id, until),
            CampaignStep::Send => return self.queue(id, Turn::Other),
            CampaignStep::Scan(timeout) => (Request::Scan(Arc::clone(&campaigning.slots)), timeout),
            CampaignStep::Read(slot, timeout) => (Request::Get(key(slot)), timeout),
            CampaignStep::Insert(slot, vacant, entry, timeout) => {
                (Request::Insert(key(slot), vacant, entry), timeout)
            }
            CampaignStep::TakeOver(slot, observed, entry, timeout) => {
                (Request::TakeOver(key(slot), observed, entry), timeout)
            }
            CampaignStep::Renew(slot, held, entry, timeout) => {
                (Request::Swap(key(slot), held, entry, None), timeout)
            }
        };
        self.call(id, timeout, request);
    }

    /// A read may be dropped at will, and nobody should wait for one on behalf of a campaign that is over
    /// (I10). A write runs its whole time.
    pub(super) fn withdrawable(&mut self, id: usize) -> Option<AbortRegistration> {
        let Kind::Campaigning(campaigning) = &mut self.actors.get_mut(id)?.kind else { return None };
        let (reading, withdrawn) = AbortHandle::new_pair();
        campaigning.reading = Some(reading);
        Some(withdrawn)
    }

    /// Arms the deadman, and only then lets the owner know (I4).
    fn won(&mut self, id: usize, won: Won) {
        let Some(mut campaigning) = self.end_campaign(id) else { return };
        let Won { slot, entry, sent_at } = won;
        let key = campaigning.slots[slot].clone();
        let (Some(reply), Some(commands)) = (campaigning.reply.take(), self.commands.upgrade()) else {
            return self.release_unused(id, key, &entry);
        };
        let subject = Subject { key: self.text(&key), holder: campaigning.holder, epoch: entry.epoch.get() };
        let armed = match self.env.deadman.arm(subject, Timing::of(entry.ttl).kill_at(sent_at)) {
            Ok(armed) => armed,
            Err(error) => {
                drop(reply.send(Err(AcquireError::Deadman(error))));
                return self.release_unused(id, key, &entry);
            }
        };
        let standing = self.standing(id, &key, &entry, sent_at);
        let lease = Lease::begin(entry, sent_at, self.settings.renewal_attempts, self.jitter());
        let wake_at = lease.wake_at();
        self.actors[id].kind = Kind::Leading(Box::new(Leading {
            key: key.clone(),
            lease,
            standing: standing.clone(),
            armed,
            gone: false,
            handing_back: None,
            dropped: false,
        }));
        self.wake_at(id, wake_at);
        // A grant that reaches nobody hands itself back.
        drop(reply.send(Ok((key, Grant(Some(Hold::new(standing, id, commands)))))));
    }

    fn standing(&self, id: usize, key: &K, entry: &Entry, sent_at: Instant) -> Standing {
        let clock = Arc::clone(&self.env.clock);
        if self.storage.documents().is_none() {
            return Standing::new(entry, sent_at, clock, NoPartition);
        }
        let reports = Reports { lease: id, commands: Weak::clone(&self.commands) };
        let storage = Arc::downgrade(&self.storage);
        Standing::new(entry, sent_at, clock, KeyPartition { key: key.clone(), storage, reports })
    }

    /// Deletes what the campaign's unresolved attempts may have left, and ends it.
    fn abandon(&mut self, id: usize) {
        let Some(campaigning) = self.end_campaign(id) else { return };
        let left = campaigning.campaign.abandon();
        self.remove(id);
        let Some((slot, entries)) = left else { return };
        for entry in entries {
            let id = self.add(Kind::Changing);
            self.release_unused(id, campaigning.slots[slot].clone(), &entry);
        }
    }

    /// Releases a record under which no work was ever started.
    fn release_unused(&mut self, id: usize, key: K, entry: &Entry) {
        let release = Release::begin(entry.incarnation(), entry.epoch, Timing::of(entry.ttl));
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
