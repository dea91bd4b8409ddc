//! One leadership, from the claim that won it to the last moment at which its holder may act.

use ielections::{Epoch, Incarnation};
use std::sync::Arc;
use vvm_clock::Instant;
use vvm_deadman::recording::RecordingTrigger;
use vvm_storage::SlotNumber;

#[derive(Clone, Debug)]
pub(in super::super) struct Span {
    pub(super) contender: usize,
    pub(super) slot: SlotNumber,
    pub(super) epoch: Epoch,
    pub(super) incarnation: Incarnation,
    /// From then on, no other contender may act.
    pub(super) claim_sent_at: Instant,
    pub(super) began: Instant,
    /// What would have killed the process.
    pub(super) trigger: Arc<RecordingTrigger>,
    pub(super) ended: Option<Instant>,
}

impl Span {
    /// Until when it acts: its end, or the deadline at which its process is dead unless a renewal is
    /// confirmed before. Without a deadline there is no end (I4).
    pub(super) fn acts_until(&self) -> Instant {
        let killed = || self.trigger.fired().first().map(|(at, _)| *at);
        let deadline = || self.trigger.earliest().map(|(at, _)| at);
        self.ended.or_else(killed).or_else(deadline).unwrap_or(Instant::NEVER)
    }

    /// What is wrong if both were leaders (I1), in whatever order they were written down.
    pub(super) fn conflict(&self, other: &Self) -> Option<String> {
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

    /// How much of `from..until` it led.
    pub(super) fn within(&self, from: Instant, until: Instant) -> std::time::Duration {
        self.began.max(from).until(self.acts_until().min(until))
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
            contender: 0,
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
    fn one_after_the_other_is_fine_in_whatever_order_they_are_seen() {
        let (one, two) = (span(1, 0, Some(5)), span(2, 5, Some(9)));
        assert_eq!((one.conflict(&two), two.conflict(&one)), (None, None));
    }

    #[test]
    fn overlaps_falling_epochs_and_leaders_without_a_deadline_are_not() {
        let two = span(2, 5, None);
        assert!(span(1, 0, Some(6)).conflict(&two).is_some_and(|what| what.contains("1s")));
        assert!(span(2, 0, Some(4)).conflict(&two).is_some_and(|what| what.contains("follows")));
        assert!(span(1, 0, None).conflict(&two).is_some());
    }

    #[test]
    fn a_share_is_what_lies_within() {
        let led = span(1, 1, Some(9));
        assert_eq!(led.within(at(0), at(20)).as_secs(), 7);
        assert_eq!(led.within(at(3), at(5)).as_secs(), 2);
        assert_eq!(led.within(at(10), at(20)).as_secs(), 0);
    }
}
