//! [`Timeline`]: events, folded into what a picture is made of: who was there, who led, who worked, what was done to whom.

use super::event::{Event, Lane, What};
use ielections::Epoch;
use vvm_clock::Instant;

/// All that has happened.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) began: Instant,
    /// In the order of their starts.
    pub(crate) lives: Vec<Life>,
    /// In the order in which they were seen first.
    pub(crate) leaderships: Vec<Leadership>,
    /// In the order in which they were made known.
    pub(crate) marks: Vec<Mark>,
}

/// One `vvm run`, from its start until it has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) lane: Lane,
    pub(crate) started: Instant,
    pub(crate) left: Option<Instant>,
}

/// One epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leadership {
    pub(crate) lane: Lane,
    pub(crate) epoch: Epoch,
    /// When the record was seen to name it.
    pub(crate) elected: Instant,
    /// When new versions of the record were seen.
    pub(crate) renewals: Vec<Instant>,
    /// When the record was seen free, or in another's hands.
    pub(crate) gone: Option<Instant>,
    /// Whether it was handed back, and not taken.
    pub(crate) released: bool,
    /// By the worker's own word.
    pub(crate) work: Option<Work>,
}

/// The work under one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub(crate) began: Instant,
    pub(crate) ended: Option<Instant>,
}

/// Something done to a lane, or done by it in one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) lane: Lane,
    pub(crate) at: Instant,
    pub(crate) kind: MarkKind,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MarkKind {
    Crashed,
    AskedToStop,
    HostStopped,
    Deadline,
    HostDied,
}

impl Timeline {
    /// Nothing has happened yet.
    pub(crate) fn beginning_at(began: Instant) -> Self {
        Self { began, lives: Vec::new(), leaderships: Vec::new(), marks: Vec::new() }
    }

    /// Takes note of `event`. Events may become known later than others that happened after them.
    pub(crate) fn take(&mut self, event: Event) {
        let Event { at, lane, what } = event;
        let mut mark = |kind| self.marks.push(Mark { lane, at, kind });
        match what {
            What::Started(_) => self.lives.push(Life { lane, started: at, left: None }),
            What::Elected(epoch) => {
                // A record has one holder: whoever was before is not in it any more.
                for earlier in self.leaderships.iter_mut().filter(|earlier| earlier.epoch < epoch) {
                    earlier.gone.get_or_insert(at);
                }
                let leadership = self.leadership(lane, epoch, at);
                leadership.elected = leadership.elected.min(at);
            }
            What::Renewed(epoch) => self.leadership(lane, epoch, at).renewals.push(at),
            What::Released(epoch) => {
                let leadership = self.leadership(lane, epoch, at);
                leadership.released = true;
                leadership.gone.get_or_insert(at);
            }
            What::WorkBegan(epoch, _) => {
                self.leadership(lane, epoch, at).work.get_or_insert(Work { began: at, ended: None });
            }
            What::WorkEnded(epoch, _) => {
                let work =
                    self.leadership(lane, epoch, at).work.get_or_insert(Work { began: at, ended: None });
                work.ended = Some(at);
            }
            What::Crashed => mark(MarkKind::Crashed),
            What::AskedToStop => mark(MarkKind::AskedToStop),
            What::HostStopped => mark(MarkKind::HostStopped),
            What::Deadline => mark(MarkKind::Deadline),
            What::HostDied => mark(MarkKind::HostDied),
            What::Left(_) => {
                let life = self.lives.iter_mut().rfind(|life| life.lane == lane);
                if let Some(life) = life {
                    life.left.get_or_insert(at);
                }
            }
        }
    }

    /// What is known of `epoch`: a worker's first line may be read before the record is.
    fn leadership(&mut self, lane: Lane, epoch: Epoch, at: Instant) -> &mut Leadership {
        let found = self.leaderships.iter().position(|leadership| leadership.epoch == epoch);
        let place = found.unwrap_or_else(|| {
            let (renewals, gone, released, work) = (Vec::new(), None, false, None);
            self.leaderships.push(Leadership { lane, epoch, elected: at, renewals, gone, released, work });
            self.leaderships.len() - 1
        });
        &mut self.leaderships[place]
    }

    /// Who has the record now.
    pub(crate) fn leader(&self) -> Option<&Leadership> {
        self.leaderships.iter().rfind(|leadership| leadership.gone.is_none())
    }

    /// The first mark of `kind`.
    pub(crate) fn mark(&self, kind: MarkKind) -> Option<Mark> {
        self.marks.iter().copied().find(|mark| mark.kind == kind)
    }

    /// The leadership whose worker was the first to begin after `moment`.
    pub(crate) fn next_at_work(&self, moment: Instant) -> Option<(&Leadership, Instant)> {
        let began =
            self.leaderships.iter().filter_map(|leadership| Some((leadership, leadership.work?.began)));
        began.filter(|(_, began)| *began > moment).min_by_key(|(_, began)| *began)
    }

    /// The leadership that `lane` had at `moment`, by the record.
    pub(crate) fn led_by(&self, lane: Lane, moment: Instant) -> Option<&Leadership> {
        self.leaderships.iter().find(|leadership| {
            leadership.lane == lane
                && leadership.elected <= moment
                && leadership.gone.is_none_or(|gone| gone >= moment)
        })
    }
}

impl Leadership {
    /// The last moment at which the record was seen to be written.
    pub(crate) fn last_written(&self) -> Instant {
        self.renewals.last().copied().unwrap_or(self.elected)
    }

    /// Whether its worker is at work, as far as is known.
    pub(crate) fn is_working(&self) -> bool {
        self.work.is_some_and(|work| work.ended.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rehearsal, *};

    #[test]
    fn a_rehearsal_folds_into_who_led_and_who_worked() {
        let timeline = rehearsal::whole();
        let lanes = timeline.leaderships.iter().map(|leadership| leadership.lane).collect::<Vec<_>>();
        assert_eq!(lanes, [Lane::A, Lane::B, Lane::C, Lane::A]);
        assert_eq!(timeline.lives.iter().filter(|life| life.lane == Lane::A).count(), 2);
        for pair in timeline.leaderships.windows(2) {
            assert!(pair[0].gone.unwrap() <= pair[1].elected);
            assert!(pair[0].work.unwrap().ended.unwrap() < pair[1].work.unwrap().began);
        }
        assert_eq!(timeline.leader(), None, "the last one has handed back");
    }

    #[test]
    fn the_next_at_work_is_by_the_workers_word() {
        let timeline = rehearsal::whole();
        let crash = timeline.mark(MarkKind::Crashed).unwrap();
        let (next, began) = timeline.next_at_work(crash.at).unwrap();
        assert_eq!(next.lane, Lane::B);
        assert!(began > crash.at);
        assert_eq!(timeline.led_by(crash.lane, crash.at).unwrap().lane, Lane::A);
    }

    #[test]
    fn a_worker_seen_before_its_record_is_no_second_leadership() {
        let mut timeline = Timeline::beginning_at(Instant::ORIGIN);
        let (epoch, worker) = (Epoch::new(5).unwrap(), rehearsal::process(7));
        let event = |millis, what| Event { at: rehearsal::at(millis), lane: Lane::B, what };
        timeline.take(event(20, What::WorkBegan(epoch, worker)));
        assert!(timeline.leader().unwrap().is_working());
        timeline.take(event(10, What::Elected(epoch)));
        let [leadership] = &timeline.leaderships[..] else { panic!("one leadership") };
        assert_eq!((leadership.elected, leadership.last_written()), (rehearsal::at(10), rehearsal::at(10)));
        assert_eq!(leadership.work.unwrap().began, rehearsal::at(20));
    }
}
