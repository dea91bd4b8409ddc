//! Who claimed, led and was deposed, on one clock: what is checked at every step, and what is judged at the
//! end.
//!
//! What lives here: writing down, and checking while it happens. What doesn't: the judgement of the whole
//! ([`judgement`]).

mod judgement;
mod span;

pub(super) use span::Span;

use ielections::{Entry, Incarnation, Leadership, Loss, testing::elections_suite::Process};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use vvm_clock::Instant;
use vvm_storage::ElectionKey;

/// Everything that happened.
#[derive(Default, Debug)]
pub(super) struct Ledger(Mutex<Book>);

#[derive(Default, Debug)]
struct Book {
    /// How often each contender has begun to campaign.
    campaigns: HashMap<usize, u64>,
    claims: HashMap<Incarnation, Claimed>,
    spans: Vec<Span>,
    violations: Vec<String>,
}

/// An attempt to acquire.
#[derive(Debug)]
struct Claimed {
    contender: usize,
    campaign: u64,
    sent_at: Instant,
    /// What the last attempt to write for it was to put there.
    last: Entry,
}

/// What contenders write down.
impl Ledger {
    /// A contender begins to campaign.
    pub(super) fn campaigns(&self, contender: usize) {
        *self.book().campaigns.entry(contender).or_default() += 1;
    }

    /// An attempt to acquire is sent: of a vacant slot, or of one where `observed` has stood for its TTL.
    ///
    /// Whether the claim took over a record of the same campaign, whose TTL it waited out itself.
    pub(super) fn claims(&self, contender: usize, entry: &Entry, observed: Option<&Entry>, sent_at: Instant) {
        let mut book = self.book();
        let campaign = book.campaigns.get(&contender).copied().unwrap_or_default();
        let own = observed.and_then(|observed| book.claims.get(&observed.incarnation()));
        if own.is_some_and(|own| own.contender == contender && own.campaign == campaign) {
            let epoch = entry.epoch;
            book.violates(format!(
                "contender {contender} has waited out its own record before epoch {epoch}"
            ));
        }
        let claimed = Claimed { contender, campaign, sent_at, last: entry.clone() };
        book.claims.insert(entry.incarnation(), claimed);
    }

    /// A renewal is sent.
    pub(super) fn renews(&self, entry: &Entry) {
        if let Some(claimed) = self.book().claims.get_mut(&entry.incarnation()) {
            claimed.last = entry.clone();
        }
    }

    /// A leadership begins. Returns what the leader before it wrote last, in the same slot.
    pub(super) fn begins(
        &self,
        contender: usize,
        key: &ElectionKey,
        leadership: &Leadership,
        process: &Process<ElectionKey>,
        now: Instant,
    ) -> Option<Entry> {
        let mut book = self.book();
        let Some(claimed) = book.claims.get(&leadership.incarnation()) else {
            book.violates(format!("{} was never claimed", leadership.epoch()));
            return None;
        };
        let span = Span {
            contender,
            slot: key.slot,
            epoch: leadership.epoch(),
            incarnation: leadership.incarnation(),
            claim_sent_at: claimed.sent_at,
            began: now,
            trigger: process.trigger.clone(),
            ended: None,
        };
        let before = book.spans.iter().filter(|other| other.slot == key.slot).max_by_key(|other| other.epoch);
        let before = before.and_then(|before| Some(book.claims.get(&before.incarnation)?.last.clone()));
        // This is final: no end moves to an earlier time later.
        let conflicts: Vec<_> = book.spans.iter().filter_map(|other| span.conflict(other)).collect();
        conflicts.into_iter().for_each(|conflict| book.violates(conflict));
        book.spans.push(span);
        before
    }

    /// A leader stops to act: right before it hands back, or when it is dead.
    pub(super) fn ends(&self, incarnation: Incarnation, now: Instant) {
        let mut book = self.book();
        if let Some(span) = book.spans.iter_mut().find(|span| span.incarnation == incarnation) {
            span.ended = Some(span.acts_until().min(now));
        }
    }

    /// A leader hears that it has lost; without that, it would have been dead at `kill_at`.
    ///
    /// The first time at which another contender may take its record.
    pub(super) fn loses(&self, incarnation: Incarnation, loss: &Loss, kill_at: Instant) {
        let mut book = self.book();
        let too_early = match loss {
            Loss::Vanished => true,
            Loss::Stolen { by } => {
                book.claims.get(&by.incarnation()).is_none_or(|thief| thief.sent_at < kill_at)
            }
            _ => false,
        };
        if too_early {
            book.violates(format!("{incarnation} was deposed before its deadline: {loss}"));
        }
    }

    /// Something was seen that must never be.
    pub(super) fn violates(&self, what: String) {
        self.book().violates(what);
    }

    /// Every change leaves the book whole, so poison carries no information here.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is asked while it goes on.
impl Ledger {
    /// Who leads now. Two in one slot are a violation.
    pub(super) fn look(&self, now: Instant) -> Vec<usize> {
        let mut book = self.book();
        let acting: Vec<&Span> =
            book.spans.iter().filter(|span| span.ended.is_none() && span.acts_until() > now).collect();
        let twice = acting.iter().enumerate().find_map(|(index, one)| {
            let other = acting[..index].iter().find(|other| other.slot == one.slot)?;
            Some(format!("slot {}: {} and {} at once", one.slot, one.epoch, other.epoch))
        });
        let leading = acting.iter().map(|span| span.contender).collect();
        twice.into_iter().for_each(|twice| book.violates(twice));
        leading
    }

    /// What was violated so far.
    ///
    /// # Errors
    /// All of it, if anything was.
    pub(super) fn is_clean(&self) -> Result<(), String> {
        let book = self.book();
        if book.violations.is_empty() { Ok(()) } else { Err(book.violations.join("\n")) }
    }
}

impl Book {
    fn violates(&mut self, what: String) {
        self.violations.push(format!("VIOLATION: {what}"));
    }
}
