//! Writes that were sent and may or may not have been applied (I7).

use crate::{Entry, Slot, Version};
use vvm_clock::Instant;

/// One write that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attempt {
    /// What it writes.
    pub(super) entry: Entry,
    /// The instant just before it was sent: what its confirmation counts from (I3), and no other attempt's.
    pub(super) sent_at: Instant,
}

/// Attempts that all replace the same thing, so that at most one of them can ever apply.
///
/// A confirmation needs the *version* of an attempt: finding one's own incarnation proves nothing, since the
/// record that a lost renewal left in place has it too (I7).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(super) fn push(&mut self, attempt: Attempt) {
        self.0.push(attempt);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The attempt sent last; its answer is the one being waited for.
    pub(super) fn last(&self) -> Option<&Attempt> {
        self.0.last()
    }

    /// The attempt sent last, taken out: it is the one that applied.
    pub(super) fn take_last(&mut self) -> Option<Attempt> {
        self.0.pop()
    }

    /// The last attempt was certainly not applied.
    pub(super) fn discard_last(&mut self) {
        self.0.pop();
    }

    /// All are settled: one was confirmed, or something else stands there, which none of them can replace any
    /// more.
    pub(super) fn settle(&mut self) {
        // Not `clear`: a lease must not keep the capacity of its worst hour (I11).
        self.0 = Vec::new();
    }

    /// The attempt whose write stands in `slot`, if one does.
    pub(super) fn shown_by(&self, slot: &Slot) -> Option<&Attempt> {
        let version: Version = slot.entry()?.version;
        self.0.iter().find(|attempt| attempt.entry.version == version)
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.0.into_iter().map(|attempt| attempt.entry)
    }
}
