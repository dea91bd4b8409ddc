//! The check that needs nobody's word but the workers': did two ever work at once, and did epochs rise?

use super::{
    event::Lane,
    heartbeat::{Line, Word},
};
use ielections::Epoch;
use rustix::process::Pid;
use std::fmt;
use vvm_clock::Instant;

/// The work of one worker under one epoch, from its first line to its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stint {
    pub(crate) lane: Lane,
    pub(crate) epoch: Epoch,
    pub(crate) worker: Pid,
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    /// Whether its first line says that it begins.
    begins: bool,
}

impl fmt::Display for Stint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}'s worker {} of epoch {}", self.lane, self.worker, self.epoch)
    }
}

/// What the logs say.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Evidence {
    /// In the order of their first lines.
    pub(crate) stints: Vec<Stint>,
}

/// Two who worked at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overlap(pub(crate) Stint, pub(crate) Stint);

impl fmt::Display for Overlap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(earlier, later) = self;
        let until = earlier.last.min(later.last);
        write!(out, "{earlier} and {later} both worked for {:?}", later.first.until(until))
    }
}

impl Evidence {
    /// The evidence in all logs together, each with the lane that it belongs to.
    pub(crate) fn of(logs: &[(Lane, Vec<Line>)]) -> Self {
        let mut stints = Vec::<Stint>::new();
        for (lane, lines) in logs {
            for line in lines {
                let same = |stint: &&mut Stint| {
                    (stint.lane, stint.epoch, stint.worker) == (*lane, line.epoch, line.worker)
                };
                match stints.iter_mut().find(same) {
                    // Not the order in the file but the time decides, should they ever differ.
                    Some(stint) => {
                        stint.first = stint.first.min(line.at);
                        stint.last = stint.last.max(line.at);
                    }
                    None => stints.push(Stint {
                        lane: *lane,
                        epoch: line.epoch,
                        worker: line.worker,
                        first: line.at,
                        last: line.at,
                        begins: line.word == Word::Begin,
                    }),
                }
            }
        }
        stints.sort_by_key(|stint| stint.first);
        Self { stints }
    }

    /// Every two of whom one wrote while the other was not done (I1). One line at the same moment is one too many.
    pub(crate) fn overlaps(&self) -> Vec<Overlap> {
        let pairs = self.stints.iter().enumerate().flat_map(|(place, earlier)| {
            let later = self.stints[place + 1..].iter();
            later.filter(|later| later.first <= earlier.last).map(|later| Overlap(*earlier, *later))
        });
        pairs.collect()
    }

    /// The epochs, in the order in which work began under them.
    pub(crate) fn epochs(&self) -> Vec<Epoch> {
        self.stints.iter().map(|stint| stint.epoch).collect()
    }

    /// Whether each worker had a larger epoch than all before it (I2).
    pub(crate) fn epochs_rose(&self) -> bool {
        self.stints.is_sorted_by(|earlier, later| earlier.epoch < later.epoch)
    }

    /// Whether each worker wrote before it acted: else its first line is not the beginning of its work.
    pub(crate) fn all_begin(&self) -> bool {
        self.stints.iter().all(|stint| stint.begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a worker that beats at these moments.
    fn worker(worker: i32, epoch: u64, beats: impl IntoIterator<Item = u64>) -> Vec<Line> {
        let (epoch, worker) = (Epoch::new(epoch).unwrap(), Pid::from_raw(worker).unwrap());
        let beats = beats.into_iter().enumerate();
        let word = |place| if place == 0 { Word::Begin } else { Word::Beat };
        beats
            .map(|(place, at)| Line { at: Instant::from_nanos(at), epoch, worker, word: word(place) })
            .collect()
    }

    #[test]
    fn one_after_another_is_as_it_should_be() {
        let a = [worker(10, 1, 0..5), worker(12, 3, 20..25)].concat();
        let evidence = Evidence::of(&[(Lane::A, a), (Lane::B, worker(11, 2, 5..20))]);
        assert_eq!(evidence.stints.len(), 3);
        assert_eq!(evidence.overlaps(), []);
        assert!(evidence.epochs_rose() && evidence.all_begin());
        assert_eq!(evidence.epochs().iter().map(|epoch| epoch.get()).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_planted_overlap_is_found_down_to_one_moment() {
        let evidence = Evidence::of(&[(Lane::A, worker(10, 1, 0..=5)), (Lane::B, worker(11, 2, 5..9))]);
        let [overlap] = evidence.overlaps()[..] else { panic!("one overlap") };
        assert_eq!((overlap.0.lane, overlap.1.lane), (Lane::A, Lane::B));
    }

    #[test]
    fn an_overlap_with_one_who_is_not_the_last_before_is_found() {
        let a = worker(10, 1, [0, 100]);
        let b = [worker(11, 2, [10, 20]), worker(12, 3, [30, 40])].concat();
        let overlaps = Evidence::of(&[(Lane::A, a), (Lane::B, b)]).overlaps();
        assert_eq!(overlaps.iter().map(|pair| pair.1.epoch.get()).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn two_workers_of_one_candidate_at_once_are_found() {
        let a = [worker(10, 1, [0, 50]), worker(11, 2, [40, 60])].concat();
        assert_eq!(Evidence::of(&[(Lane::A, a)]).overlaps().len(), 1);
    }

    #[test]
    fn an_epoch_that_falls_or_stays_is_found() {
        for second in [1, 2] {
            let logs = [(Lane::A, worker(10, 2, 0..5)), (Lane::B, worker(11, second, 6..9))];
            assert!(!Evidence::of(&logs).epochs_rose());
        }
    }

    #[test]
    fn a_worker_that_acts_before_it_writes_is_found() {
        let mut lines = worker(10, 1, 0..5);
        lines.remove(0);
        assert!(!Evidence::of(&[(Lane::A, lines)]).all_begin());
    }
}
