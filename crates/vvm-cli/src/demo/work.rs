//! [`WorkPeriod`]: when a worker worked, by the workers' own logs.

use super::{timeline::CandidateId, worker::Line};
use ielections::Epoch;
use rustix::process::Pid;
use std::fmt;
use vvm_clock::Instant;

/// The work of one worker under one epoch, from its first line to its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkPeriod {
    id: CandidateId,
    pub(super) epoch: Epoch,
    pub(super) worker: Pid,
    pub(super) first: Instant,
    pub(super) last: Instant,
    /// How many lines there are, if none is missing before the last.
    lines: Option<u32>,
}

impl WorkPeriod {
    /// Adds a line of this candidate's log, and returns the period of work that it belongs to if that is new.
    pub(super) fn add(periods: &mut Vec<Self>, id: CandidateId, line: Line) -> Option<Self> {
        let Line { at, epoch, worker, count } = line;
        let same = |period: &&mut Self| (period.id, period.epoch, period.worker) == (id, epoch, worker);
        if let Some(period) = periods.iter_mut().find(same) {
            (period.first, period.last) = (period.first.min(at), period.last.max(at));
            period.lines = period.lines.filter(|lines| *lines == count).map(|lines| lines + 1);
            return None;
        }
        periods.push(Self { id, epoch, worker, first: at, last: at, lines: (count == 0).then_some(1) });
        periods.last().copied()
    }
}

impl fmt::Display for WorkPeriod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}'s worker {} of epoch {}", self.id.name(), self.worker, self.epoch)
    }
}

/// Returns each pair of which one wrote while the other had not ended (I1), be it one line at one moment.
/// `periods` are in the order of their first lines.
pub(super) fn overlaps(periods: &[WorkPeriod]) -> Vec<[WorkPeriod; 2]> {
    let pairs = periods.iter().enumerate().flat_map(|(place, earlier)| {
        let later = periods[place + 1..].iter();
        later.filter(|later| later.first <= earlier.last).map(|later| [*earlier, *later])
    });
    pairs.collect()
}

/// Returns whether the logs have every line: work could precede a first line that is missing.
pub(super) fn are_complete(periods: &[WorkPeriod]) -> bool {
    !periods.is_empty() && periods.iter().all(|period| period.lines.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        sample,
        timeline::CandidateId::{A, B},
    };

    /// Returns the work of workers with a line each millisecond: candidate, process, epoch, from, until.
    fn work(workers: &[(CandidateId, i32, u64, u64, u64)]) -> Vec<WorkPeriod> {
        let mut periods = Vec::new();
        for (id, worker, leader, from, until) in workers {
            for (at, count) in (*from..=*until).zip(0..) {
                WorkPeriod::add(&mut periods, *id, sample::line(at, *leader, *worker, count));
            }
        }
        periods.sort_by_key(|period| period.first);
        periods
    }

    #[test]
    fn workers_that_follow_each_other_do_not_overlap() {
        let work = work(&[(A, 10, 1, 0, 4), (A, 12, 3, 20, 25), (B, 11, 2, 5, 19)]);
        assert_eq!((work.len(), overlaps(&work), are_complete(&work)), (3, vec![], true));
    }

    #[test]
    fn every_overlap_is_found_down_to_one_moment() {
        let later =
            |workers: &[_]| overlaps(&work(workers)).iter().map(|pair| pair[1].worker).collect::<Vec<_>>();
        let [b, c] = [11, 12].map(sample::process);
        assert_eq!(later(&[(A, 10, 1, 0, 5), (B, 11, 2, 5, 9)]), [b]);
        assert_eq!(later(&[(A, 10, 1, 0, 50), (A, 11, 2, 40, 60)]), [b], "of one candidate");
        let with_one_before_the_last = [(A, 10, 1, 0, 100), (B, 11, 2, 10, 20), (B, 12, 3, 30, 40)];
        assert_eq!(later(&with_one_before_the_last), [b, c]);
    }

    #[test]
    fn missing_line_and_empty_log_are_found() {
        for counts in [&[1, 2][..], &[0, 2], &[]] {
            let mut periods = Vec::new();
            for count in counts {
                WorkPeriod::add(&mut periods, A, sample::line(u64::from(*count), 1, 10, *count));
            }
            assert!(!are_complete(&periods), "{counts:?}");
        }
    }
}
