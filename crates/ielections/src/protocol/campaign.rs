//! [`Campaign`]: from a candidate to the leader of one slot.

mod resolve;
mod view;

use super::lease::{Attempt, Attempts};
use crate::{
    AcquireError, AcquireTimeout, Claim, Delete, Entropy, Entry, Epoch, Holder, Incarnation, ReadError, Slot,
    Swap, Terms, Timing, Ttl, Vacant, Version, WriteError, record::EpochOutOfRange, timing::Jitter,
};
use std::{
    hash::{Hash, Hasher},
    mem,
    sync::Arc,
    time::Duration,
};
use view::{ClaimableState, SlotObservation};
use vvm_clock::{Instant, WallClock};

/// A candidate for one of several slots, which are numbered from 0. Its rules:
///
/// 1. Read all slots before writing, and again whenever one can have changed.
/// 2. Claim a vacant slot. Observe a held one until its writer's TTL has passed, and then take it over (I5).
/// 3. Every attempt has its own incarnation. While one is unresolved, try no other slot (I7). Read back. If
///    the write is undecided, try the same slot again on the same condition: either the new attempt applies
///    and the old one never can, or the refusal shows which one did.
/// 4. Renew a claim whose answer came late before it counts (I3). Never wait for our own record to expire.
/// 5. A hint brings the next read of the slots forward, and has no other effect.
/// 6. While hints follow releases, read a held slot when its renewal is due, and then once a poll until the
///    renewal shows. So a renewal is seen within a poll, as without hints, unless it came early.
/// 7. Before any claim, delete a record that an earlier leadership of this process left behind. Its work has stopped
///    (I6), and the delete names incarnation and epoch, so it changes no other record, however late it is applied (I7).
/// 8. A campaign that ends without a slot deletes the records that its unresolved attempts may have written.
#[derive(Clone, Hash, Debug)]
pub struct Campaign {
    terms: Terms,
    timing: Timing,
    sources: Sources,
    gives_up_at: Instant,
    /// Since when no call of the storage has had a useful answer.
    stuck_since: Option<Instant>,
    views: Vec<SlotObservation>,
    target: Option<Target>,
    phase: CampaignPhase,
    next_scan: Instant,
    /// A hint arrived after the last scan was sent.
    hinted: bool,
    /// No hint causes a scan before this (I10).
    hints_allowed_at: Instant,
    /// Refusals since the last pause. Their number is bounded, or a faulty storage could keep us busy (I10).
    refusals: usize,
    last_failure: Option<String>,
    /// The last scan did not read all slots.
    is_partial: bool,
}

/// Where random bytes and dates come from. The hash leaves them out, because they are no part of a campaign's state.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) wall: Arc<dyn WallClock>,
}

impl Sources {
    pub(super) fn claim(
        &self,
        holder: &Holder,
        ttl: Ttl,
        last: Option<Epoch>,
    ) -> Result<Entry, EpochOutOfRange> {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        let epoch = Epoch::following(last, self.wall.since_unix_epoch())?;
        let version = Version { incarnation: Incarnation::from_bytes(bytes), write: 0 };
        Ok(Entry { holder: holder.clone(), version, ttl, epoch })
    }
}

impl Hash for Sources {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Hash, Debug)]
struct Target {
    slot: usize,
    basis: ClaimCondition,
    attempts: Attempts,
    /// The last attempt has no answer, nor has a read since. A read is next, so that attempts don't pile up (I11).
    unread: bool,
    /// The largest write number of all attempts. No number is used twice.
    last_write: u64,
}

/// The state of the slot that an attempt replaces.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ClaimCondition {
    Vacant(Vacant),
    Expired(Entry),
    /// Our own record, confirmed too late to start work.
    Own(Entry),
}

#[derive(Clone, Hash, Debug)]
enum CampaignPhase {
    Waiting(Instant),
    Queued(Intent),
    Calling(Intent),
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Intent {
    Scan,
    Verify(usize),
    Attempt,
    ReadBack,
    Release(usize),
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
            timing: Timing::new(terms.ttl),
            terms,
            sources: Sources { entropy, wall },
            gives_up_at,
            stuck_since: None,
            views: vec![SlotObservation::default(); slots],
            target: None,
            phase: CampaignPhase::Waiting(now),
            next_scan: now,
            hinted: false,
            hints_allowed_at: now,
            refusals: 0,
            last_failure: None,
            is_partial: false,
        }
    }

    /// Returns the next step.
    pub fn on(&mut self, now: Instant, event: CampaignEvent) -> CampaignStep {
        match (event, mem::replace(&mut self.phase, CampaignPhase::Over)) {
            (CampaignEvent::Woken, CampaignPhase::Waiting(until)) if now < until => self.wait(until),
            (CampaignEvent::Woken, CampaignPhase::Waiting(_)) => self.decide(now),
            (CampaignEvent::Hinted, CampaignPhase::Waiting(until)) => {
                self.hinted = true;
                self.wait(until)
            }
            (CampaignEvent::Hinted, phase) => {
                // The answer in flight may be from before the change.
                self.hinted = true;
                self.phase = phase;
                CampaignStep::Sleep(Instant::NEVER)
            }
            (CampaignEvent::MaySend, CampaignPhase::Queued(intent)) => self.send(now, intent),
            (CampaignEvent::Scanned(scanned), CampaignPhase::Calling(Intent::Scan)) => {
                self.scanned(now, scanned)
            }
            (CampaignEvent::Read(outcome), CampaignPhase::Calling(Intent::ReadBack)) => {
                self.read_back(now, outcome)
            }
            (CampaignEvent::Read(outcome), CampaignPhase::Calling(Intent::Verify(slot))) => {
                self.verified(now, slot, outcome)
            }
            (CampaignEvent::Claimed(outcome), CampaignPhase::Calling(Intent::Attempt)) => self.answered(
                now,
                outcome.map(|claim| match claim {
                    Claim::Claimed => None,
                    Claim::Refused(slot) => Some(slot),
                }),
            ),
            (CampaignEvent::TakenOver(outcome), CampaignPhase::Calling(Intent::Attempt)) => self.answered(
                now,
                outcome.map(|swap| match swap {
                    Swap::Swapped => None,
                    Swap::Mismatch(slot) => Some(slot),
                }),
            ),
            (CampaignEvent::Deleted(outcome), CampaignPhase::Calling(Intent::Release(slot))) => {
                self.released(now, slot, outcome)
            }
            // An unexpected event, such as a timer that was cancelled too late, changes nothing.
            (_, CampaignPhase::Waiting(until)) => self.wait(until),
            (_, phase) => {
                self.phase = phase;
                CampaignStep::Sleep(Instant::NEVER)
            }
        }
    }

    /// Ends the campaign. Returns the slot, and the records that it may have written there. The caller deletes them.
    pub fn abandon(self) -> Option<(usize, Vec<Entry>)> {
        let target = self.target?;
        let left: Vec<Entry> = match target.basis {
            // All its renewals have the same incarnation and epoch.
            ClaimCondition::Own(entry) => vec![entry],
            ClaimCondition::Vacant(_) | ClaimCondition::Expired(_) => {
                target.attempts.into_entries().collect()
            }
        };
        (!left.is_empty()).then_some((target.slot, left))
    }

    /// Gives `to` every instant, to shift it, and every version, to renumber it.
    #[cfg(feature = "testing")]
    pub fn rebase(&mut self, to: &mut dyn super::Rebase) {
        to.until(&mut self.gives_up_at);
        to.until(&mut self.next_scan);
        to.until(&mut self.hints_allowed_at);
        self.stuck_since.iter_mut().for_each(|since| to.since(since));
        self.views.iter_mut().for_each(|view| view.rebase(to));
        if let CampaignPhase::Waiting(until) = &mut self.phase {
            to.until(until);
        }
        self.terms.left_behind.iter_mut().for_each(|left| super::rebase_record(left, to));
        let Some(target) = &mut self.target else { return };
        if let ClaimCondition::Own(own) = &target.basis {
            // Only renewals are numbered. Each attempt to claim has an incarnation of its own.
            super::rebase_write(own.incarnation(), &mut target.last_write, to);
        }
        match &mut target.basis {
            ClaimCondition::Vacant(vacant) => vacant.last_epoch.iter_mut().for_each(|epoch| to.epoch(epoch)),
            ClaimCondition::Expired(entry) | ClaimCondition::Own(entry) => to.entry(entry),
        }
        target.attempts.rebase(to);
    }

    /// Waits until the instant or the next scan. While an attempt is unresolved, no scan is due, also by a hint (I7).
    fn wait(&mut self, until: Instant) -> CampaignStep {
        let until = if self.target.is_none() { until.min(self.scans_at()) } else { until };
        self.phase = CampaignPhase::Waiting(until);
        CampaignStep::Sleep(until)
    }

    fn queue(&mut self, intent: Intent) -> CampaignStep {
        self.phase = CampaignPhase::Queued(intent);
        CampaignStep::Send
    }

    fn fail(&mut self, error: AcquireError) -> CampaignStep {
        self.phase = CampaignPhase::Over;
        CampaignStep::Failed(error)
    }

    fn decide(&mut self, now: Instant) -> CampaignStep {
        if let Some(target) = &self.target {
            // A campaign that is out of time still renews a record of its own; it abandons other attempts.
            if now >= self.gives_up_at && !matches!(target.basis, ClaimCondition::Own(_)) {
                return self.timed_out();
            }
            return self.queue(if target.unread { Intent::ReadBack } else { Intent::Attempt });
        }
        if now >= self.scans_at() {
            return self.queue(Intent::Scan);
        }
        self.act(now)
    }

    /// Acts on what was seen, however old. Otherwise a scan longer than a poll would lead only to the next scan (I10).
    fn act(&mut self, now: Instant) -> CampaignStep {
        if let Some(slot) = self.views.iter().position(|view| view.doubtful) {
            return self.queue(Intent::Verify(slot));
        }
        if let Some(slot) = (0..self.views.len()).find(|slot| self.left_in(*slot).is_some()) {
            return self.queue(Intent::Release(slot));
        }
        if let Some((slot, opening)) = self.choose(now) {
            let basis = match opening {
                ClaimableState::Vacant(vacant) => ClaimCondition::Vacant(vacant),
                ClaimableState::Expired(entry) => ClaimCondition::Expired(entry),
            };
            self.target =
                Some(Target { slot, basis, attempts: Attempts::default(), unread: false, last_write: 0 });
            return self.queue(Intent::Attempt);
        }
        if now >= self.gives_up_at {
            return self.timed_out();
        }
        if self.terms.timeout == AcquireTimeout::UntilLeaderSeen && self.views.iter().all(|view| view.alive) {
            let leader =
                self.views.iter().find_map(SlotObservation::holder).map(|entry| entry.holder.clone());
            return self.fail(AcquireError::LeaderSeen { leader });
        }
        if self.is_partial {
            let stuck_since = *self.stuck_since.get_or_insert(now);
            if now >= self.hopeless_at(stuck_since) {
                return self.timed_out();
            }
        } else {
            self.stuck_since = None;
        }
        let opens_at = self.views.iter().map(SlotObservation::opens_at).min().unwrap_or(Instant::NEVER);
        self.wait(opens_at.min(self.next_scan).min(self.gives_up_at))
    }

    /// When the slots are read next. A hint brings only that forward, not the instant at which a slot expires (I5).
    fn scans_at(&self) -> Instant {
        if self.hinted { self.next_scan.min(self.hints_allowed_at) } else { self.next_scan }
    }

    /// When a storage that is unreachable since `stuck_since` ends the campaign, also with `UntilLeaderSeen` (I10).
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

    /// Chooses a free slot at random, so that candidates that start together don't all try the same one
    /// (I11). Prefers vacant slots: more candidates compete for an expired one.
    fn choose(&self, now: Instant) -> Option<(usize, ClaimableState)> {
        let openings =
            || self.views.iter().enumerate().filter_map(|(slot, view)| Some((slot, view.opening(now)?)));
        let is_vacant = |opening: &ClaimableState| matches!(opening, ClaimableState::Vacant(_));
        let vacant = openings().filter(|(_, opening)| is_vacant(opening)).count();
        let candidates = if vacant > 0 { vacant } else { openings().count() };
        let chosen = match candidates {
            0 | 1 => 0,
            _ => self.sources.entropy.next_u64() as usize % candidates,
        };
        openings().filter(|(_, opening)| vacant == 0 || is_vacant(opening)).nth(chosen)
    }

    fn send(&mut self, now: Instant, intent: Intent) -> CampaignStep {
        self.phase = CampaignPhase::Calling(intent);
        let timeout = self.timing.attempt_timeout();
        match (intent, &self.target) {
            (Intent::Scan, _) => {
                self.refusals = 0;
                self.hinted = false;
                let poll = self.terms.poll;
                self.next_scan = now.after(self.jitter().between(poll - poll / 4, poll));
                CampaignStep::Scan(timeout)
            }
            (Intent::Verify(slot), _) => CampaignStep::Read(slot, timeout),
            (Intent::ReadBack, Some(target)) => CampaignStep::Read(target.slot, timeout),
            (Intent::Attempt, Some(_)) => self.attempt(now, timeout),
            (Intent::Release(slot), _) => match self.left_in(slot) {
                Some((incarnation, epoch)) => CampaignStep::Delete(slot, incarnation, epoch, timeout),
                None => self.wait(now),
            },
            (Intent::ReadBack | Intent::Attempt, None) => self.wait(now),
        }
    }

    /// Returns the record that an earlier leadership of this process left behind in the slot, if it still stands.
    fn left_in(&self, slot: usize) -> Option<(Incarnation, Epoch)> {
        let entry = self.views.get(slot)?.holder()?;
        let left = self.terms.left_behind.iter();
        left.copied().find(|(incarnation, epoch)| entry.is_of(*incarnation, *epoch))
    }

    /// Handles the answer to a `Delete`. Without an answer, the next scan shows whether the record still stands.
    fn released(&mut self, now: Instant, slot: usize, outcome: Result<Delete, WriteError>) -> CampaignStep {
        let Some(left) = self.left_in(slot) else { return self.decide(now) };
        let found = match outcome {
            Ok(Delete::Deleted) => Slot::Vacant(Vacant { last_epoch: Some(left.1) }),
            Ok(Delete::Mismatch(found)) => found,
            Err(WriteError::NotApplied(cause) | WriteError::Unknown(cause)) => {
                self.last_failure = Some(cause.to_string());
                return self.pause(now);
            }
            Err(WriteError::Fatal(cause) | WriteError::Replaced(cause)) => {
                return self.fail(AcquireError::Refused(cause));
            }
        };
        // It is gone for good, so a stale read that shows it causes no further delete (I10).
        self.terms.left_behind.retain(|of| *of != left);
        match self.take_in(slot, &found, now) {
            Ok(()) => self.act(now),
            Err(error) => self.fail(error),
        }
    }

    fn attempt(&mut self, now: Instant, timeout: Duration) -> CampaignStep {
        let Some(mut target) = self.target.take() else { return self.wait(now) };
        let claimed = match &target.basis {
            ClaimCondition::Vacant(vacant) => self.fresh_entry(vacant.last_epoch),
            ClaimCondition::Expired(observed) => self.fresh_entry(Some(observed.epoch)),
            ClaimCondition::Own(own) => {
                Ok(own.renewed(Version { write: target.last_write + 1, ..own.version }))
            }
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
            ClaimCondition::Vacant(vacant) => CampaignStep::Insert(slot, vacant, entry, timeout),
            ClaimCondition::Expired(observed) => CampaignStep::TakeOver(slot, observed, entry, timeout),
            ClaimCondition::Own(own) => CampaignStep::Renew(slot, own, entry, timeout),
        }
    }

    fn fresh_entry(&self, last: Option<Epoch>) -> Result<Entry, AcquireError> {
        let claim = self.sources.claim(&self.terms.holder, self.terms.ttl, last);
        claim.map_err(|error| AcquireError::Refused(Box::new(error)))
    }

    fn read_failed(&mut self, now: Instant, error: ReadError) -> CampaignStep {
        match error {
            // A candidate has no leadership to lose, so a replaced storage is one that refuses.
            ReadError::Fatal(cause) | ReadError::Replaced(cause) => self.fail(AcquireError::Refused(cause)),
            ReadError::Unavailable(cause) => {
                self.last_failure = Some(cause.to_string());
                self.back_off(now)
            }
        }
    }

    /// Pauses for at most a poll, so that the end of an outage is noticed soon.
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

    /// Pauses, and ignores hints until the pause is over: the storage failed or refused too often.
    fn back_off(&mut self, now: Instant) -> CampaignStep {
        self.hints_allowed_at = Instant::NEVER;
        let step = self.pause(now);
        self.hints_allowed_at = self.next_scan;
        step
    }

    fn jitter(&self) -> Jitter {
        Jitter::from_random(self.sources.entropy.next_u64())
    }
}

/// An event of a campaign.
#[derive(Debug)]
pub enum CampaignEvent {
    /// The instant of [`CampaignStep::Sleep`] has come.
    Woken,
    /// The slots may have changed. A hint may be false.
    Hinted,
    /// A request may go out now.
    MaySend,
    /// The scan was answered.
    Scanned(ScanAnswer),
    /// The `get` was answered.
    Read(Result<Slot, ReadError>),
    /// The `insert_if_not_exist` or `take_over` was answered.
    Claimed(Result<Claim, WriteError>),
    /// The `compare_and_swap` of [`CampaignStep::Renew`] was answered.
    TakenOver(Result<Swap, WriteError>),
    /// The `compare_and_delete` was answered.
    Deleted(Result<Delete, WriteError>),
}

/// The answer to a scan.
#[derive(Debug)]
pub struct ScanAnswer {
    /// The slots that were read.
    pub seen: Vec<Option<Slot>>,
    /// The error if not all were read.
    pub outcome: Result<(), ReadError>,
    /// Whether a hint follows every release that the scan does not show
    /// ([`TtlStorage::hints_of_releases`](crate::TtlStorage::hints_of_releases)).
    pub hints_follow: bool,
}

/// The next step of a campaign: the slot's index, what is replaced, what replaces it, and the time limit of the call.
#[derive(Debug)]
pub enum CampaignStep {
    /// Do nothing; deliver `Woken` at that instant. Replaces an earlier `Sleep`.
    Sleep(Instant),
    /// Deliver `MaySend` as soon as a request may go out.
    Send,
    /// Call `scan` on all slots now.
    Scan(Duration),
    /// Call `get` now.
    Read(usize, Duration),
    /// Call `insert_if_not_exist` now.
    Insert(usize, Vacant, Entry, Duration),
    /// Call `take_over` now.
    TakeOver(usize, Entry, Entry, Duration),
    /// Call `compare_and_swap` now, on our own record.
    Renew(usize, Entry, Entry, Duration),
    /// Call `compare_and_delete` now, on a record that an earlier leadership of this process left behind.
    Delete(usize, Incarnation, Epoch, Duration),
    /// A slot was won.
    Won(WonSlot),
    /// The campaign has ended without a slot.
    Failed(AcquireError),
}

/// A slot that was won, fresh enough to start work on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WonSlot {
    /// Index of the slot.
    pub slot: usize,
    /// Its record.
    pub entry: Entry,
    /// When the write of the record was sent (I3).
    pub sent_at: Instant,
}
