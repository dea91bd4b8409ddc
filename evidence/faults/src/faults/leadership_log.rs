//! [`LeadershipLog`]: claims, leaderships and losses of all candidates, on one clock. Overlaps are detected
//! during the run; [`verdict`] checks everything at the end.

mod span;
mod verdict;

pub(super) use span::Span;

use ielections::{Entry, Incarnation, Leadership, Loss, testing::elections_suite::Process};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use vvm_clock::Instant;
use vvm_storage::ElectionKey;

/// The log, shared by all candidates.
#[derive(Default, Debug)]
pub(super) struct LeadershipLog(Mutex<Log>);

#[derive(Default, Debug)]
struct Log {
    /// The number of campaigns of each candidate.
    campaigns: HashMap<usize, u64>,
    claims: HashMap<Incarnation, Claimed>,
    spans: Vec<Span>,
    violations: Vec<String>,
}

/// An attempt to acquire.
#[derive(Debug)]
struct Claimed {
    candidate: usize,
    campaign: u64,
    sent_at: Instant,
    /// The entry of its last write, applied or not.
    last: Entry,
}

/// What candidates record.
impl LeadershipLog {
    /// Records that a candidate begins a campaign.
    pub(super) fn campaigns(&self, candidate: usize) {
        *self.log().campaigns.entry(candidate).or_default() += 1;
    }

    /// Records a claim of a vacant slot, or of a slot whose record `observed` has expired.
    ///
    /// It is a violation if the record belongs to the same campaign: the candidate waited for its own record.
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

    /// Records that a renewal is sent.
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

    /// Records that a leader stops: just before it releases, or when it is dead.
    pub(super) fn ends(&self, incarnation: Incarnation, now: Instant) {
        let mut log = self.log();
        if let Some(span) = log.spans.iter_mut().find(|span| span.incarnation == incarnation) {
            span.ended = Some(span.acts_until().min(now));
        }
    }

    /// Records that a leader learns of its loss. Its deadline was `kill_at`, and no candidate may take its
    /// record before that.
    pub(super) fn loses(&self, incarnation: Incarnation, loss: &Loss, kill_at: Instant) {
        let mut log = self.log();
        let too_early = match loss {
            Loss::Vanished => true,
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
    }

    /// Records a violation.
    pub(super) fn violates(&self, what: String) {
        self.log().violates(what);
    }

    /// Every change leaves the log consistent, so a poisoned lock is no problem.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks during the run.
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

    /// Checks that there is no violation so far.
    ///
    /// # Errors
    /// All violations.
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
