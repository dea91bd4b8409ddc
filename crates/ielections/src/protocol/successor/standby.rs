use super::{FromStandby, Pairing, Ping};
use crate::{
    Claim as ClaimAnswer, Entropy, Entry, Holder, ReadError, Slot, Swap, Timing, Ttl, WriteError,
    protocol::{
        campaign::Sources,
        lease::{Attempt, Attempts},
    },
    timing::SupportPeriod,
};
use std::{sync::Arc, time::Duration};
use vvm_clock::{Instant, WallClock};
#[cfg(feature = "testing")]
use {
    super::rebase_ping,
    crate::protocol::{Rebase, rebase_write},
};

/// The side of the standby, for one slot (N1 to N9: [the module](super)). It calls the storage by itself, so that it
/// waits for no scan of the campaign (N6).
#[derive(Clone, Hash, Debug)]
pub struct Successor {
    holder: Holder,
    ttl: Ttl,
    sources: Sources,
    leaves: bool,
    phase: Phase,
}

#[derive(Clone, Hash, Debug)]
enum Phase {
    Idle,
    /// Not named, or the ping that says so has not arrived.
    Offering {
        pairing: Pairing,
        ttl: Ttl,
        last: Option<LastPing>,
    },
    Named(Box<ClaimRight>),
}

#[derive(Clone, Copy, Hash, Debug)]
struct LastPing {
    number: u64,
    /// Without another one until then, a new offer is made.
    until: Instant,
}

#[derive(Clone, Hash, Debug)]
struct ClaimRight {
    pairing: Pairing,
    /// P and W of the first ping that named this standby.
    period: SupportPeriod,
    below: u64,
    /// The TTL of the record.
    ttl: Ttl,
    last_ping: u64,
    /// When the naming arrived, or the last ping that was acknowledged. A reading made after that (N5).
    counts_from: Instant,
    call: Call,
    claim: Option<Claim>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Call {
    /// None before this instant.
    Waits(Instant),
    Queued,
    InFlight,
}

#[derive(Clone, Hash, Debug)]
struct Claim {
    /// The version to replace.
    from: Entry,
    /// It is our own claim, which was confirmed too late to start work.
    is_own: bool,
    attempts: Attempts,
    /// The last attempt has no answer, and no read was answered since.
    is_unread: bool,
    last_write: u64,
}

/// An event of a successor.
#[derive(Debug)]
pub enum SuccessorEvent {
    /// The instant of the last step has come, or the step was carried out.
    Woken,
    /// A read of the slot was answered. It shows this record, and a document of its leader that asks for a successor.
    Found(Entry),
    /// A datagram arrived.
    Received(Ping),
    /// A request may go out now.
    MaySend,
    /// The `get` was answered.
    Read(Result<Slot, ReadError>),
    /// The `take_over` was answered.
    Claimed(Result<ClaimAnswer, WriteError>),
    /// The `compare_and_swap` was answered.
    Swapped(Result<Swap, WriteError>),
    /// The standby is to stop (N7).
    Stop,
}

/// The next step of a successor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuccessorStep {
    /// Do nothing; deliver `Woken` at that instant. Replaces an earlier `Sleep`.
    Sleep(Instant),
    /// Send this to the leader now.
    Reply(FromStandby),
    /// Deliver `MaySend` as soon as a request may go out.
    Send,
    /// Call `get` now, a linearizable read, for at most this long.
    Read(Duration),
    /// Call `take_over` now: the version observed, the record to write, and for how long at most.
    TakeOver(Entry, Entry, Duration),
    /// Call `compare_and_swap` now: the version held, the record to write, and for how long at most.
    Renew(Entry, Entry, Duration),
    /// The slot was won by a write that was sent at this instant. Abandon the campaign. This is the last step.
    Won(Entry, Instant),
    /// No right is left: the standby may stop.
    MayStop,
}

impl Successor {
    /// A standby that would lead as `holder` with `ttl`.
    pub fn begin(holder: Holder, ttl: Ttl, entropy: Arc<dyn Entropy>, wall: Arc<dyn WallClock>) -> Self {
        Self { holder, ttl, sources: Sources { entropy, wall }, leaves: false, phase: Phase::Idle }
    }

    /// By which leader this standby is named, and W, as far as it knows.
    pub fn named_by(&self, now: Instant) -> Option<(Pairing, u64)> {
        match &self.phase {
            Phase::Named(right) if !right.is_over(now) => Some((right.pairing, right.below)),
            Phase::Idle | Phase::Offering { .. } | Phase::Named(_) => None,
        }
    }

    /// Ends it, because the process wins another slot or stops. Returns the records that unresolved attempts may have
    /// written, each to be deleted by incarnation and epoch.
    pub fn abandon(self) -> Vec<Entry> {
        let Phase::Named(right) = self.phase else { return Vec::new() };
        right.claim.map_or_else(Vec::new, |claim| match claim.is_own {
            true => vec![claim.from],
            false => claim.attempts.into_entries().collect(),
        })
    }

    /// Returns the next step.
    pub fn on(&mut self, now: Instant, event: SuccessorEvent) -> SuccessorStep {
        match event {
            SuccessorEvent::Woken => self.woken(now),
            SuccessorEvent::Found(entry) => self.found(now, &entry),
            SuccessorEvent::Received(ping) => self.received(now, ping),
            SuccessorEvent::MaySend => self.send(now),
            SuccessorEvent::Read(Ok(slot)) => self.resolve(now, &slot),
            SuccessorEvent::Read(Err(ReadError::Unavailable(_) | ReadError::Fatal(_))) => self.pause(now),
            SuccessorEvent::Claimed(Ok(ClaimAnswer::Claimed))
            | SuccessorEvent::Swapped(Ok(Swap::Swapped)) => {
                match self.claim().and_then(|claim| claim.attempts.take_last()) {
                    Some(attempt) => self.confirmed(now, attempt),
                    None => self.pause(now),
                }
            }
            SuccessorEvent::Claimed(Ok(ClaimAnswer::Refused(slot)))
            | SuccessorEvent::Swapped(Ok(Swap::Mismatch(slot))) => self.resolve(now, &slot),
            SuccessorEvent::Claimed(Err(error)) | SuccessorEvent::Swapped(Err(error)) => {
                self.write_failed(now, &error)
            }
            // The campaign meets the new storage, and decides.
            SuccessorEvent::Read(Err(ReadError::Replaced(_))) => self.end(),
            SuccessorEvent::Stop => {
                self.leaves = true;
                if let Phase::Named(right) = &mut self.phase {
                    if let Call::Waits(_) = right.call {
                        right.call = Call::Waits(now.after(right.timing().ping_interval() * 4));
                    }
                    self.woken(now)
                } else {
                    self.end()
                }
            }
        }
    }

    fn claim(&mut self) -> Option<&mut Claim> {
        if let Phase::Named(right) = &mut self.phase { right.claim.as_mut() } else { None }
    }

    fn end(&mut self) -> SuccessorStep {
        self.phase = Phase::Idle;
        if self.leaves { SuccessorStep::MayStop } else { SuccessorStep::Sleep(Instant::NEVER) }
    }

    /// A new offer at each answered read, until a ping for it arrives (N3). Then the offer stands until pings stop.
    fn found(&mut self, now: Instant, entry: &Entry) -> SuccessorStep {
        let is_pinged = match &self.phase {
            Phase::Idle => false,
            Phase::Offering { pairing, last, .. } => {
                entry.is_of(pairing.incarnation, pairing.epoch) && last.is_some_and(|last| now < last.until)
            }
            Phase::Named(_) => true,
        };
        if is_pinged || self.leaves {
            return self.woken(now);
        }
        let mut offer = [0; 16];
        self.sources.entropy.fill(&mut offer);
        let pairing = Pairing { incarnation: entry.incarnation(), epoch: entry.epoch, offer };
        self.phase = Phase::Offering { pairing, ttl: entry.ttl, last: None };
        SuccessorStep::Reply(FromStandby::Offer(pairing))
    }

    fn received(&mut self, now: Instant, ping: Ping) -> SuccessorStep {
        let Ping { pairing, number, period, below } = ping;
        match &mut self.phase {
            Phase::Offering { pairing: own, ttl, last }
                if *own == pairing && last.is_none_or(|last| number > last.number) =>
            {
                *last = Some(LastPing { number, until: now.after(period.get()) });
                if let Some(below) = below {
                    let (ttl, call) = (*ttl, Call::Waits(now));
                    let (last_ping, counts_from, claim) = (number, now, None);
                    let right =
                        ClaimRight { pairing, period, below, ttl, last_ping, counts_from, call, claim };
                    self.phase = Phase::Named(Box::new(right));
                }
            }
            // A claim that was sent waits for nothing more: the leader is dead, or has withdrawn.
            Phase::Named(right)
                if right.pairing == pairing
                    && number > right.last_ping
                    && below.is_some()
                    && !right.is_claiming() =>
            {
                (right.last_ping, right.counts_from) = (number, now);
            }
            _ => return self.woken(now),
        }
        let (acknowledges, leaves) = (below.is_some(), self.leaves);
        SuccessorStep::Reply(FromStandby::Answer { pairing, number, acknowledges, leaves })
    }

    fn woken(&mut self, now: Instant) -> SuccessorStep {
        let leaves = self.leaves;
        let Phase::Named(right) = &mut self.phase else { return SuccessorStep::Sleep(Instant::NEVER) };
        if right.is_over(now) && !right.is_claiming() && right.call != Call::InFlight {
            return self.end();
        }
        let Call::Waits(until) = right.call else { return SuccessorStep::Sleep(Instant::NEVER) };
        let waits_for_leader = !leaves && !right.is_claiming();
        let until = if waits_for_leader { until.max(right.claims_from()) } else { until };
        if now < until {
            return SuccessorStep::Sleep(until);
        }
        right.call = Call::Queued;
        SuccessorStep::Send
    }

    fn send(&mut self, now: Instant) -> SuccessorStep {
        let leaves = self.leaves;
        let Phase::Named(right) = &mut self.phase else { return SuccessorStep::Sleep(Instant::NEVER) };
        if right.call != Call::Queued {
            return self.woken(now);
        }
        right.call = Call::InFlight;
        let timeout = right.timing().attempt_timeout();
        let may_claim = right.may_claim(now, leaves);
        let Some(claim) =
            right.claim.as_mut().filter(|claim| !claim.is_unread && (claim.is_own || may_claim))
        else {
            return SuccessorStep::Read(timeout);
        };
        let entry = if claim.is_own {
            let write = claim.last_write + 1;
            claim.from.renewed(crate::Version { write, ..claim.from.version })
        } else {
            match self.sources.claim(&self.holder, self.ttl, Some(claim.from.epoch)) {
                Ok(entry) => entry,
                // Only a corrupt record has no epoch after its own.
                Err(_) => return self.end(),
            }
        };
        claim.last_write = entry.version.write;
        claim.attempts.push(Attempt { entry: entry.clone(), sent_at: now });
        let from = claim.from.clone();
        if claim.is_own {
            SuccessorStep::Renew(from, entry, timeout)
        } else {
            SuccessorStep::TakeOver(from, entry, timeout)
        }
    }

    fn pause(&mut self, now: Instant) -> SuccessorStep {
        self.try_at(now, |right| right.timing().retry_pause())
    }

    fn try_at(&mut self, now: Instant, pause: impl Fn(&ClaimRight) -> Duration) -> SuccessorStep {
        if let Phase::Named(right) = &mut self.phase {
            right.call = Call::Waits(now.after(pause(right)));
        }
        self.woken(now)
    }

    fn write_failed(&mut self, now: Instant, error: &WriteError) -> SuccessorStep {
        match (self.claim(), error) {
            // `abandon` has no use any more: nothing of a storage that was replaced is ours.
            (_, WriteError::Replaced(_)) => self.end(),
            (Some(claim), WriteError::NotApplied(_) | WriteError::Fatal(_)) => {
                claim.attempts.discard_last();
                self.pause(now)
            }
            (Some(claim), WriteError::Unknown(_)) => {
                claim.is_unread = true;
                self.try_at(now, |_| Duration::ZERO)
            }
            (None, _) => self.pause(now),
        }
    }

    /// Handles a linearizable answer: it shows which of our attempts applied (I7), or what may be claimed (N6).
    fn resolve(&mut self, now: Instant, slot: &Slot) -> SuccessorStep {
        let Phase::Named(right) = &mut self.phase else { return SuccessorStep::Sleep(Instant::NEVER) };
        if let Some(claim) = &mut right.claim {
            claim.is_unread = false;
            if let Some(attempt) = claim.attempts.shown_by(slot).cloned() {
                return self.confirmed(now, attempt);
            }
            if slot.entry().is_some_and(|entry| entry.is_same_write(&claim.from)) {
                // Undecided, and then tried again on the same condition; or only read, once the right has ended.
                return self.pause(now);
            }
        }
        let Pairing { incarnation, epoch, .. } = right.pairing;
        let is_permitted =
            |entry: &&Entry| entry.is_of(incarnation, epoch) && entry.version.write < right.below;
        // Versions are unique, so no attempt on another one can be applied any more.
        match slot.entry().filter(is_permitted) {
            Some(entry) if !right.claim.as_ref().is_some_and(|claim| claim.is_own) => {
                let (from, attempts) = (entry.clone(), Attempts::default());
                let claim = Claim { from, is_own: false, attempts, is_unread: false, last_write: 0 };
                right.claim = right.may_claim(now, self.leaves).then_some(claim);
                // One that leaves looks until it is withdrawn. Otherwise P passes first.
                let pause = if self.leaves { right.timing().ping_interval() * 4 } else { Duration::ZERO };
                self.try_at(now, |_| pause)
            }
            _ => self.end(),
        }
    }

    /// Handles an attempt that applied. It counts from its own send (I3). If that was too long ago, the record is renewed
    /// before work starts, as by a campaign.
    fn confirmed(&mut self, now: Instant, attempt: Attempt) -> SuccessorStep {
        let timing = Timing::new(self.ttl);
        let Some(claim) = self.claim() else { return SuccessorStep::Sleep(Instant::NEVER) };
        claim.attempts.settle();
        let is_last = attempt.entry.version.write == claim.last_write;
        if is_last && timing.is_fresh(attempt.sent_at, now) {
            self.phase = Phase::Idle;
            return SuccessorStep::Won(attempt.entry, attempt.sent_at);
        }
        (claim.from, claim.is_own) = (attempt.entry, true);
        self.try_at(now, |_| Duration::ZERO)
    }
}

impl ClaimRight {
    fn timing(&self) -> Timing {
        Timing::support(self.period)
    }

    fn claims_from(&self) -> Instant {
        self.counts_from.after(self.period.get())
    }

    fn may_claim(&self, now: Instant, leaves: bool) -> bool {
        now >= self.claims_from() && !self.is_over(now) && !leaves
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.counts_from.after(self.ttl.get())
    }

    fn is_claiming(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_own || !claim.attempts.is_empty())
    }
}

#[cfg(feature = "testing")]
impl Successor {
    /// Hands on every instant, name and number, to be shifted and renumbered.
    pub fn rebase(&mut self, to: &mut dyn Rebase) {
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Offering { pairing, last, .. } => {
                if let Some(last) = last {
                    rebase_ping(pairing.incarnation, &mut last.number, to);
                    to.until(&mut last.until);
                }
                pairing.rebase(to);
            }
            Phase::Named(right) => {
                let leadership = right.pairing.incarnation;
                rebase_write(leadership, &mut right.below, to);
                rebase_ping(leadership, &mut right.last_ping, to);
                right.pairing.rebase(to);
                to.since(&mut right.counts_from);
                if let Call::Waits(until) = &mut right.call {
                    to.until(until);
                }
                let Some(claim) = &mut right.claim else { return };
                if claim.is_own {
                    rebase_write(claim.from.incarnation(), &mut claim.last_write, to);
                }
                to.entry(&mut claim.from);
                claim.attempts.rebase(to);
            }
        }
    }
}
