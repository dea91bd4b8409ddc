//! [`Attempts`]: writes that were sent and may have been applied (I7).

use crate::{Entry, Slot, Version};
use vvm_clock::Instant;

/// One write that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attempt {
    /// The record that it writes.
    pub(super) entry: Entry,
    /// The instant just before it was sent. Only the confirmation of this attempt counts from it (I3).
    pub(super) sent_at: Instant,
}

/// Attempts that all replace the same state of a slot, so at most one of them can be applied.
///
/// Only the *version* of an attempt confirms it. The incarnation proves nothing, since the record that a lost
/// renewal should have replaced has it, too (I7).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(super) fn push(&mut self, attempt: Attempt) {
        self.0.push(attempt);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The attempt that was sent last.
    pub(super) fn last(&self) -> Option<&Attempt> {
        self.0.last()
    }

    /// Removes the attempt that was sent last, because it was applied.
    pub(super) fn take_last(&mut self) -> Option<Attempt> {
        self.0.pop()
    }

    /// Removes the attempt that was sent last, because it was not and never will be applied.
    pub(super) fn discard_last(&mut self) {
        self.0.pop();
    }

    /// Removes all attempts: one was confirmed, or the slot has changed so that none can be applied any more.
    pub(super) fn settle(&mut self) {
        // `clear` would keep the capacity that an outage needed (I11).
        self.0 = Vec::new();
    }

    /// Returns the attempt whose record stands in `slot`, if there is one.
    pub(super) fn shown_by(&self, slot: &Slot) -> Option<&Attempt> {
        let version: Version = slot.entry()?.version;
        self.0.iter().find(|attempt| attempt.entry.version == version)
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.0.into_iter().map(|attempt| attempt.entry)
    }
}
