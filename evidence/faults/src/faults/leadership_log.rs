//! [`LeadershipLog`]: claims, leaderships and losses of all candidates, on one clock. Overlaps are detected
//! during the run; the verdict checks everything at the end.

use super::{
    event::{Counts, Event},
    fault::Deletion,
};
use crate::faults::SLOTS;
use ielections::{Entry, Epoch, Incarnation, Leadership, Loss, testing::elections_suite::Process};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::recording::RecordingTrigger;
use vvm_storage::{ElectionKey, SlotNumber};

#[derive(Default, Debug)]
pub(super) struct LeadershipLog(Mutex<Log>);

#[derive(Default, Debug)]
struct Log {
    campaigns: HashMap<usize, u64>,
    claims: HashMap<Incarnation, Claimed>,
    spans: Vec<Span>,
    /// What was deleted by hand, and when that was done. Until then it may happen at any time.
    deletions: Vec<(Deletion, Instant)>,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Claimed {
    candidate: usize,
    campaign: u64,
    sent_at: Instant,
    last: Entry,
}

impl LeadershipLog {
    pub(super) fn campaigns(&self, candidate: usize) {
        *self.log().campaigns.entry(candidate).or_default() += 1;
    }

    /// Records a claim of a vacant slot, or of a slot whose record `observed` has expired. It is a violation if the
    /// record belongs to the same campaign: the candidate waited for its own record.
    pub(super) fn claims(&self, candidate: usize, entry: &Entry, observed: Option<&Entry>, sent_at: Instant) {
        let mut log = self.log();
        let campaign = log.campaigns.get(&candidate).copied().unwrap_or_default();
        let own = observed.and_then(|observed| log.claims.get(&observed.incarnation()));
        if own.is_some_and(|own| own.candidate == candidate && own.campaign == campaign) {
            let epoch = entry.epoch;
            log.violates(format!(
                "candidate {candidate} waited for the TTL of its own record before epoch {epoch}"
            ));
        }
        let claimed = Claimed { candidate, campaign, sent_at, last: entry.clone() };
        log.claims.insert(entry.incarnation(), claimed);
    }

    pub(super) fn renews(&self, entry: &Entry) {
        if let Some(claimed) = self.log().claims.get_mut(&entry.incarnation()) {
            claimed.last = entry.clone();
        }
    }

    /// Records that a leadership begins. Returns the last entry of the leader before it in the same slot.
    pub(super) fn begins(
        &self,
        candidate: usize,
        key: &ElectionKey,
        leadership: &Leadership,
        process: &Process<ElectionKey>,
        now: Instant,
    ) -> Option<Entry> {
        let mut log = self.log();
        let Some(claimed) = log.claims.get(&leadership.incarnation()) else {
            log.violates(format!("{} was never claimed", leadership.epoch()));
            return None;
        };
        let span = Span {
            candidate,
            slot: key.slot,
            epoch: leadership.epoch(),
            incarnation: leadership.incarnation(),
            claim_sent_at: claimed.sent_at,
            began: now,
            trigger: process.trigger.clone(),
            ended: None,
        };
        let before = log.spans.iter().filter(|other| other.slot == key.slot).max_by_key(|other| other.epoch);
        let before = before.and_then(|before| Some(log.claims.get(&before.incarnation)?.last.clone()));
        // A conflict found now is final, because no end moves to an earlier time later.
        let conflicts: Vec<_> = log.spans.iter().filter_map(|other| span.conflict(other)).collect();
        conflicts.into_iter().for_each(|conflict| log.violates(conflict));
        log.spans.push(span);
        before
    }

    pub(super) fn ends(&self, incarnation: Incarnation, now: Instant) {
        let mut log = self.log();
        if let Some(span) = log.spans.iter_mut().find(|span| span.incarnation == incarnation) {
            span.ended = Some(span.acts_until().min(now));
        }
    }

    /// Records that a leader learns of its loss. Its deadline was `kill_at`, and no candidate may take its
    /// record before that. Returns whether its record was deleted by hand.
    pub(super) fn loses(&self, incarnation: Incarnation, loss: &Loss, kill_at: Instant) -> bool {
        let mut log = self.log();
        let is_deleted = log.spans.iter().find(|span| span.incarnation == incarnation).is_some_and(|span| {
            let mut deletions = log.deletions.iter();
            deletions.any(|(what, done)| what.concerns(span.slot) && span.claim_sent_at < *done)
        });
        let too_early = match loss {
            // Kubernetes says that another object has the name, or none.
            Loss::Vanished | Loss::StorageReplaced { .. } if is_deleted => return true,
            // Nothing leads by the placeholder in place of a record that was deleted.
            Loss::Stolen { by }
                if is_deleted && by.holder.as_str().starts_with("none: the record was deleted") =>
            {
                return true;
            }
            Loss::Vanished => true,
            Loss::EpochWentBack { held, found } => *found == Some(*held),
            // Nothing leads by the record that waits after a fail-over.
            Loss::Stolen { by } if by.holder.as_str().starts_with("none: waiting") => false,
            Loss::Stolen { by } => {
                log.claims.get(&by.incarnation()).is_none_or(|thief| thief.sent_at < kill_at)
            }
            _ => false,
        };
        if too_early {
            log.violates(format!("{incarnation} was deposed before its deadline: {loss}"));
        }
        false
    }

    pub(super) fn deletes<T>(&self, what: Deletion, delete: impl FnOnce() -> T) -> T {
        let mut log = self.log();
        let index = log.deletions.len();
        log.deletions.push((what, Instant::NEVER));
        drop(log);
        let done = delete();
        self.log().deletions[index].1 = SystemClock::read();
        done
    }

    pub(super) fn violates(&self, what: String) {
        self.log().violates(what);
    }

    /// Every change leaves the log consistent, so a poisoned lock is no problem.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeadershipLog {
    /// Returns the present leaders. Two leaders of one slot are a violation.
    pub(super) fn look(&self, now: Instant) -> Vec<usize> {
        let mut log = self.log();
        let acting: Vec<&Span> =
            log.spans.iter().filter(|span| span.ended.is_none() && span.acts_until() > now).collect();
        let twice = acting.iter().enumerate().find_map(|(index, one)| {
            let other = acting[..index].iter().find(|other| other.slot == one.slot)?;
            Some(format!("slot {}: {} and {} at once", one.slot, one.epoch, other.epoch))
        });
        let leading = acting.iter().map(|span| span.candidate).collect();
        twice.into_iter().for_each(|twice| log.violates(twice));
        leading
    }

    pub(super) fn is_clean(&self) -> Result<(), String> {
        let log = self.log();
        if log.violations.is_empty() { Ok(()) } else { Err(log.violations.join("\n")) }
    }
}

impl Log {
    fn violates(&mut self, what: String) {
        self.violations.push(format!("VIOLATION: {what}"));
    }
}

#[derive(Clone, Debug)]
pub(super) struct Span {
    candidate: usize,
    slot: SlotNumber,
    epoch: Epoch,
    incarnation: Incarnation,
    /// From then on, no earlier leader may act.
    claim_sent_at: Instant,
    began: Instant,
    /// The deadman of the process.
    trigger: Arc<RecordingTrigger>,
    ended: Option<Instant>,
}

impl Span {
    /// Returns until when it can act: its end, or the deadline of its process. Without a deadline there is no end (I4).
    fn acts_until(&self) -> Instant {
        let killed = || self.trigger.fired().first().map(|(at, _)| *at);
        let deadline = || self.trigger.earliest().map(|(at, _)| at);
        self.ended.or_else(killed).or_else(deadline).unwrap_or(Instant::NEVER)
    }

    /// Returns the violation by the two leaderships, if there is one (I1). Their order does not matter.
    fn conflict(&self, other: &Self) -> Option<String> {
        if self.slot != other.slot {
            return None;
        }
        let (first, second) =
            if self.claim_sent_at < other.claim_sent_at { (self, other) } else { (other, self) };
        let (slot, one, two) = (self.slot, first.epoch, second.epoch);
        if second.epoch <= first.epoch {
            return Some(format!("slot {slot}: {two} follows {one}"));
        }
        let overlap = second.claim_sent_at.until(first.acts_until());
        (!overlap.is_zero())
            .then(|| format!("slot {slot}: {one} may act for {overlap:?} after the claim of {two}"))
    }
}

impl LeadershipLog {
    /// Compares every two leaderships, after all have ended. Returns the number of leaderships.
    pub(super) fn judge(&self) -> usize {
        let mut log = self.log();
        let spans = &log.spans;
        let pairs = spans
            .iter()
            .enumerate()
            .flat_map(|(index, one)| spans[..index].iter().filter_map(move |other| one.conflict(other)));
        let conflicts: Vec<_> = pairs.collect();
        let count = spans.len();
        for conflict in conflicts {
            log.violates(conflict);
        }
        count
    }

    /// Returns how long after `since` every slot had a leader; `None` if a slot had none yet.
    pub(super) fn recovered(&self, since: Instant) -> Option<Duration> {
        let log = self.log();
        let first = SlotNumber::all(SLOTS).map(|slot| {
            let later = log.spans.iter().filter(|span| span.slot == slot && span.acts_until() > since);
            later.map(|span| since.until(span.began)).min()
        });
        first.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

pub(super) fn figures(
    recovered: &[(String, Duration)],
    log: &LeadershipLog,
    counts: &Counts,
    began: Instant,
) -> String {
    let leaderships = log.judge();
    let mut lines = vec![
        format!("\n{leaderships} leaderships in {:.0} s", began.until(SystemClock::read()).as_secs_f64()),
        "                         times  longest time without a leader afterwards".into(),
    ];
    let mut kinds: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for (fault, recovered) in recovered {
        kinds.entry(fault).or_default().push(*recovered);
    }
    for (name, recovered) in kinds {
        let longest = recovered.iter().max().copied().unwrap_or_default().as_secs_f64();
        lines.push(format!("{name:24} {:5}  {longest:.2} s", recovered.len()));
    }
    lines.extend(counts.all().into_iter().map(|(what, times)| format!("{times:6}  {what}")));
    lines.join("\n")
}

/// Checks that what a run is for has happened.
pub(super) fn judge(counts: &Counts) -> Result<(), String> {
    let mut required = vec![Event::LeaderCrashed, Event::DeposedRefused];
    if counts.of(Event::Deleted) > 0 {
        required.push(Event::LostByDeletion);
    }
    match required.into_iter().find(|what| counts.of(*what) == 0) {
        Some(missing) => Err(format!("never happened: {missing}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use vvm_clock::SystemClock;

    fn at(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    fn span(epoch: u64, claim_sent_at: u64, ended: Option<u64>) -> Span {
        Span {
            candidate: 0,
            slot: SlotNumber::new(NonZeroU32::MIN),
            epoch: Epoch::new(epoch).unwrap(),
            incarnation: Incarnation::from_bytes([7; 16]),
            claim_sent_at: at(claim_sent_at),
            began: at(claim_sent_at + 1),
            trigger: RecordingTrigger::on(Arc::new(SystemClock::start().unwrap())),
            ended: ended.map(at),
        }
    }

    #[test]
    fn consecutive_leaderships_do_not_conflict_in_either_order() {
        let (one, two) = (span(1, 0, Some(5)), span(2, 5, Some(9)));
        assert_eq!((one.conflict(&two), two.conflict(&one)), (None, None));
    }

    #[test]
    fn overlap_falling_epoch_and_missing_deadline_are_conflicts() {
        let two = span(2, 5, None);
        assert!(span(1, 0, Some(6)).conflict(&two).is_some_and(|what| what.contains("1s")));
        assert!(span(2, 0, Some(4)).conflict(&two).is_some_and(|what| what.contains("follows")));
        assert!(span(1, 0, None).conflict(&two).is_some());
    }

    #[test]
    fn run_without_a_required_event_fails() {
        let counts = Counts::default();
        [Event::LeaderCrashed, Event::DeposedRefused].iter().for_each(|what| counts.add(*what));
        assert_eq!(judge(&counts), Ok(()));
        counts.add(Event::Deleted);
        let missing = judge(&counts).unwrap_err();
        assert_eq!(missing, "never happened: leaders lost because their record was deleted");
    }
}
