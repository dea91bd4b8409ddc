//! [`Span`]: one leadership, from its claim to the last moment at which its leader can act.

use ielections::{Epoch, Incarnation};
use std::sync::Arc;
use vvm_clock::Instant;
use vvm_deadman::recording::RecordingTrigger;
use vvm_storage::SlotNumber;

#[derive(Clone, Debug)]
pub(in super::super) struct Span {
    pub(super) candidate: usize,
    pub(super) slot: SlotNumber,
    pub(super) epoch: Epoch,
    pub(super) incarnation: Incarnation,
    /// From then on, no earlier leader may act.
    pub(super) claim_sent_at: Instant,
    pub(super) began: Instant,
    /// The deadman of the process.
    pub(super) trigger: Arc<RecordingTrigger>,
    pub(super) ended: Option<Instant>,
}

impl Span {
    /// Returns until when it can act: its end, or the deadline at which its process is killed. Without a
    /// deadline there is no end (I4).
    pub(super) fn acts_until(&self) -> Instant {
        let killed = || self.trigger.fired().first().map(|(at, _)| *at);
        let deadline = || self.trigger.earliest().map(|(at, _)| at);
        self.ended.or_else(killed).or_else(deadline).unwrap_or(Instant::NEVER)
    }

    /// Returns the violation by the two leaderships, if there is one (I1). Their order does not matter.
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

    /// Returns how long it led within `from..until`.
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
    fn share_counts_only_time_within_the_range() {
        let led = span(1, 1, Some(9));
        assert_eq!(led.within(at(0), at(20)).as_secs(), 7);
        assert_eq!(led.within(at(3), at(5)).as_secs(), 2);
        assert_eq!(led.within(at(10), at(20)).as_secs(), 0);
    }
}
