//! A campaign: from candidate to the holder of one slot of many.
//!
//! 1. Read before writing, all slots at once, from then on whenever something can have changed.
//! 2. A vacant slot is claimed; a held one is observed until its writer's TTL has passed, and then taken over
//!    (I5).
//! 3. Every attempt has an incarnation of its own. While one is unresolved no other slot is tried (I7): the
//!    campaign reads back, and if the write is undecided, tries the same slot again on the same condition, so
//!    that either the new attempt applies and the old one never can, or the refusal shows which one did.
//! 4. A claim whose answer came late is renewed before it counts (I3); a record of our own is never waited
//!    out.
//! 5. A hint that something has changed brings the next look at the slots forward, and nothing else.
//! 6. A campaign that ends without a slot deletes what its unresolved attempts may have left.

mod look;
mod resolve;
mod step;
mod terms;
mod view;

pub use step::{CampaignEvent, CampaignStep, Won};
pub use terms::{AcquireTimeout, Terms};

use super::attempts::{Attempt, Attempts};
use crate::{
    Claim, Entropy, Entry, Epoch, Incarnation, ReadError, Swap, Timing, Vacant, Version,
    acquire_error::AcquireError, timing::Jitter,
};
use std::{mem, sync::Arc, time::Duration};
use view::{Opening, View};
use vvm_clock::{Instant, WallClock};

/// A candidate for one of several slots, which it knows by their index.
#[derive(Debug)]
pub struct Campaign {
    terms: Terms,
    timing: Timing,
    entropy: Arc<dyn Entropy>,
    wall: Arc<dyn WallClock>,
    gives_up_at: Instant,
    /// Since when nothing has come of asking the storage.
    stuck_since: Option<Instant>,
    views: Vec<View>,
    target: Option<Target>,
    phase: Phase,
    next_scan: Instant,
    /// Somebody says that something has changed, and no scan was sent since.
    hinted: bool,
    /// A hint brings no scan before this (I10).
    heeds_hints_at: Instant,
    /// Refusals since the last pause: each tells something new, but a storage gone mad must not spin us
    /// (I10).
    refusals: usize,
    last_failure: Option<String>,
    /// Slots were left unread by the last scan, so that what is known of them may be old.
    is_partial: bool,
}

/// The slot being claimed, on which condition, and the attempts that went unanswered.
#[derive(Debug)]
struct Target {
    slot: usize,
    basis: Basis,
    attempts: Attempts,
    /// The last attempt went unanswered, and no read has been answered since: the next step is a read and no
    /// further write, or an outage would pile up attempts (I11).
    unread: bool,
    /// The largest write number that an attempt had: never used again, whatever became of it.
    last_write: u64,
}

/// What an attempt replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Basis {
    Vacant(Vacant),
    Expired(Entry),
    /// A record of our own, confirmed too late to start work on.
    Own(Entry),
}

#[derive(Debug)]
enum Phase {
    Waiting(Instant),
    Queued(Intent),
    Calling(Intent),
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Intent {
    Scan,
    /// Look at one slot closely: it seemed to go back in time.
    Verify(usize),
    Attempt,
    ReadBack,
}

impl Campaign {
    /// A campaign for one of `slots` slots. Deliver `Woken` to begin.
    pub fn begin(
        mut terms: Terms,
        slots: usize,
        now: Instant,
        entropy: Arc<dyn Entropy>,
        wall: Arc<dyn WallClock>,
    ) -> Self {
        terms.poll = terms.poll.max(Terms::MIN_POLL);
        let gives_up_at = match terms.timeout {
            AcquireTimeout::Within(duration) => now.after(duration),
            AcquireTimeout::Forever | AcquireTimeout::UntilLeaderSeen => Instant::NEVER,
        };
        Self {
            timing: Timing::of(terms.ttl),
            terms,
            entropy,
            wall,
            gives_up_at,
            stuck_since: None,
            views: vec![View::default(); slots],
            target: None,
            phase: Phase::Waiting(now),
            next_scan: now,
            hinted: false,
            heeds_hints_at: now,
            refusals: 0,
            last_failure: None,
            is_partial: false,
        }
    }

    /// The next step.
    pub fn on(&mut self, now: Instant, event: CampaignEvent) -> CampaignStep {
        match (event, mem::replace(&mut self.phase, Phase::Over)) {
            (CampaignEvent::Woken, Phase::Waiting(until)) if now < until => self.wait(until),
            (CampaignEvent::Woken, Phase::Waiting(_)) => self.decide(now),
            (CampaignEvent::Hinted, Phase::Waiting(until)) => {
                self.hinted = true;
                self.wait(until)
            }
            (CampaignEvent::Hinted, phase) => {
                // What is in flight may be answered from before the change.
                self.hinted = true;
                self.phase = phase;
                CampaignStep::Sleep(Instant::NEVER)
            }
            (CampaignEvent::MaySend, Phase::Queued(intent)) => self.send(now, intent),
            (CampaignEvent::Scanned(seen, outcome), Phase::Calling(Intent::Scan)) => {
                self.scanned(now, &seen, outcome)
            }
            (CampaignEvent::Read(outcome), Phase::Calling(Intent::ReadBack)) => self.read_back(now, outcome),
            (CampaignEvent::Read(outcome), Phase::Calling(Intent::Verify(slot))) => {
                self.verified(now, slot, outcome)
            }
            (CampaignEvent::Claimed(outcome), Phase::Calling(Intent::Attempt)) => self.answered(
                now,
                outcome.map(|claim| match claim {
                    Claim::Claimed => None,
                    Claim::Refused(slot) => Some(slot),
                }),
            ),
            (CampaignEvent::Swapped(outcome), Phase::Calling(Intent::Attempt)) => self.answered(
                now,
                outcome.map(|swap| match swap {
                    Swap::Swapped => None,
                    Swap::Mismatch(slot) => Some(slot),
                }),
            ),
            // An event out of turn (a timer that was too late to cancel) changes nothing.
            (_, Phase::Waiting(until)) => self.wait(until),
            (_, phase) => {
                self.phase = phase;
                CampaignStep::Sleep(Instant::NEVER)
            }
        }
    }

    /// What unresolved attempts may have left in the storage, for a campaign that is given up: each to be
    /// deleted by its incarnation and epoch.
    pub fn abandon(self) -> Option<(usize, Vec<Entry>)> {
        let target = self.target?;
        let left: Vec<Entry> = match target.basis {
            // Whichever of its renewals stands there: they all have its incarnation and epoch.
            Basis::Own(entry) => vec![entry],
            Basis::Vacant(_) | Basis::Expired(_) => target.attempts.into_entries().collect(),
        };
        (!left.is_empty()).then_some((target.slot, left))
    }

    /// Until then, or until a hint may be heeded; while an attempt is unresolved, no hint is (I7).
    fn wait(&mut self, until: Instant) -> CampaignStep {
        let until = if self.target.is_none() { until.min(self.scans_at()) } else { until };
        self.phase = Phase::Waiting(until);
        CampaignStep::Sleep(until)
    }

    fn queue(&mut self, intent: Intent) -> CampaignStep {
        self.phase = Phase::Queued(intent);
        CampaignStep::Send
    }

    fn fail(&mut self, error: AcquireError) -> CampaignStep {
        self.phase = Phase::Over;
        CampaignStep::Failed(error)
    }

    /// Chooses what to do next, from what is known now.
    fn decide(&mut self, now: Instant) -> CampaignStep {
        if let Some(target) = &self.target {
            // Even a campaign whose time is up resolves what is ours already; what it can't, it abandons.
            if now >= self.gives_up_at && !matches!(target.basis, Basis::Own(_)) {
                return self.timed_out();
            }
            return self.queue(if target.unread { Intent::ReadBack } else { Intent::Attempt });
        }
        if now >= self.scans_at() {
            return self.queue(Intent::Scan);
        }
        self.act(now)
    }

    /// What follows from what was seen, however long ago: a scan that takes longer than a poll must not lead
    /// to nothing but the next scan (I10).
    fn act(&mut self, now: Instant) -> CampaignStep {
        if let Some(slot) = self.views.iter().position(|view| view.doubtful) {
            return self.queue(Intent::Verify(slot));
        }
        if let Some((slot, opening)) = self.choose(now) {
            let basis = match opening {
                Opening::Vacant(vacant) => Basis::Vacant(vacant),
                Opening::Expired(entry) => Basis::Expired(entry),
            };
            self.target =
                Some(Target { slot, basis, attempts: Attempts::default(), unread: false, last_write: 0 });
            return self.queue(Intent::Attempt);
        }
        if now >= self.gives_up_at {
            return self.timed_out();
        }
        if self.terms.timeout == AcquireTimeout::UntilLeaderSeen && self.views.iter().all(|view| view.alive) {
            let leader = self.views.iter().find_map(View::holder).map(|entry| entry.holder.clone());
            return self.fail(AcquireError::LeaderSeen { leader });
        }
        if self.is_partial {
            let stuck_since = *self.stuck_since.get_or_insert(now);
            if now >= self.hopeless_at(stuck_since) {
                return self.timed_out();
            }
        } else {
            // All there was to ask has been answered.
            self.stuck_since = None;
        }
        let opens_at = self.views.iter().map(View::opens_at).min().unwrap_or(Instant::NEVER);
        self.wait(opens_at.min(self.next_scan).min(self.gives_up_at))
    }

    /// When the slots are looked at next. A hint brings that forward, and nothing else: what was seen when
    /// stays as it is, and so does the instant at which a slot opens (I5).
    fn scans_at(&self) -> Instant {
        if self.hinted { self.next_scan.min(self.heeds_hints_at) } else { self.next_scan }
    }

    /// When a storage that has been of no use since `stuck_since` ends the campaign. One that waits for a
    /// leader to be seen has no time limit of its own, and without a storage nobody is ever seen (I10).
    fn hopeless_at(&self, stuck_since: Instant) -> Instant {
        match self.terms.timeout {
            AcquireTimeout::UntilLeaderSeen => stuck_since.after(self.timing.outage()),
            AcquireTimeout::Forever | AcquireTimeout::Within(_) => Instant::NEVER,
        }
    }

    fn timed_out(&mut self) -> CampaignStep {
        let last_failure = self.last_failure.take();
        self.fail(AcquireError::TimedOut { last_failure })
    }

    /// One of the openings, by chance: candidates that start together must not all want the same slot (I11).
    /// Vacant slots come before dead ones, where there may be a race with others that watched.
    fn choose(&self, now: Instant) -> Option<(usize, Opening)> {
        let openings =
            || self.views.iter().enumerate().filter_map(|(slot, view)| Some((slot, view.opening(now)?)));
        let is_vacant = |opening: &Opening| matches!(opening, Opening::Vacant(_));
        let vacant = openings().filter(|(_, opening)| is_vacant(opening)).count();
        let candidates = if vacant > 0 { vacant } else { openings().count() };
        let chosen = if candidates > 1 { self.entropy.next_u64() as usize % candidates } else { 0 };
        openings().filter(|(_, opening)| vacant == 0 || is_vacant(opening)).nth(chosen)
    }

    fn send(&mut self, now: Instant, intent: Intent) -> CampaignStep {
        self.phase = Phase::Calling(intent);
        let timeout = self.timing.attempt_timeout();
        match (intent, &self.target) {
            (Intent::Scan, _) => {
                self.refusals = 0;
                self.hinted = false;
                let poll = self.terms.poll;
                self.next_scan = now.after(self.jitter().between(poll * 3 / 4, poll));
                CampaignStep::Scan(timeout)
            }
            (Intent::Verify(slot), _) => CampaignStep::Read(slot, timeout),
            (Intent::ReadBack, Some(target)) => CampaignStep::Read(target.slot, timeout),
            (Intent::Attempt, Some(_)) => self.attempt(now, timeout),
            (Intent::ReadBack | Intent::Attempt, None) => self.wait(now),
        }
    }

    fn attempt(&mut self, now: Instant, timeout: Duration) -> CampaignStep {
        let Some(mut target) = self.target.take() else { return self.wait(now) };
        let claimed = match &target.basis {
            Basis::Vacant(vacant) => self.fresh_entry(vacant.last_epoch),
            Basis::Expired(observed) => self.fresh_entry(Some(observed.epoch)),
            Basis::Own(own) => Ok(own.renewed(Version { write: target.last_write + 1, ..own.version })),
        };
        let entry = match claimed {
            Ok(entry) => entry,
            Err(error) => return self.fail(error),
        };
        target.last_write = entry.version.write;
        target.attempts.push(Attempt { entry: entry.clone(), sent_at: now });
        let slot = target.slot;
        let basis = target.basis.clone();
        self.target = Some(target);
        match basis {
            Basis::Vacant(vacant) => CampaignStep::Insert(slot, vacant, entry, timeout),
            Basis::Expired(observed) => CampaignStep::TakeOver(slot, observed, entry, timeout),
            Basis::Own(own) => CampaignStep::Renew(slot, own, entry, timeout),
        }
    }

    fn fresh_entry(&self, last: Option<Epoch>) -> Result<Entry, AcquireError> {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        let epoch = Epoch::following(last, self.wall.since_unix_epoch())
            .map_err(|error| AcquireError::Refused(Box::new(error)))?;
        let version = Version { incarnation: Incarnation::from_bytes(bytes), write: 0 };
        Ok(Entry { holder: self.terms.holder.clone(), version, ttl: self.terms.ttl, epoch })
    }

    fn read_failed(&mut self, now: Instant, error: ReadError) -> CampaignStep {
        match error {
            // Candidates have nothing to lose yet: to them, one that was replaced refuses like any other.
            ReadError::Fatal(cause) | ReadError::Replaced(cause) => self.fail(AcquireError::Refused(cause)),
            ReadError::Unavailable(cause) => {
                self.last_failure = Some(cause.to_string());
                self.back_off(now)
            }
        }
    }

    /// A while without calls, shorter than a poll so that an outage is noticed to be over.
    fn pause(&mut self, now: Instant) -> CampaignStep {
        self.refusals = 0;
        let stuck_since = *self.stuck_since.get_or_insert(now);
        if now >= self.gives_up_at.min(self.hopeless_at(stuck_since)) {
            return self.timed_out();
        }
        let longest = self.terms.poll.min(self.timing.retry_pause());
        let until = now.after(self.jitter().between(longest / 2, longest));
        self.next_scan = until;
        self.wait(until.min(self.gives_up_at))
    }

    /// A pause that no hint shortens: for a storage that needs one.
    fn back_off(&mut self, now: Instant) -> CampaignStep {
        self.heeds_hints_at = Instant::NEVER;
        let step = self.pause(now);
        self.heeds_hints_at = self.next_scan;
        step
    }

    fn jitter(&self) -> Jitter {
        Jitter::from_random(self.entropy.next_u64())
    }
}
