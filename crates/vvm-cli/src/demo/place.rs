//! [`Place`]: who has a lane at the moment, and what its worker has written so far.

use super::{
    event::{Event, Lane, What},
    heartbeat::{Line, Reader, Unreadable, Word},
};
use rustix::process::Pid;
use vvm_containment::{Ended, Family};

/// A lane's place.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) lane: Lane,
    /// The guardian of the `vvm run` that is there.
    pub(super) guardian: Option<Pid>,
    /// Whether it was asked or made to go.
    pub(super) dismissed: bool,
    /// How the last one has ended.
    pub(super) ended: Option<Ended>,
    log: Reader,
    /// The last line of a worker whose work is not known to be over.
    working: Option<Line>,
}

impl Place {
    /// An empty place whose workers write what `log` reads.
    pub(super) fn new(lane: Lane, log: Reader) -> Self {
        Self { lane, guardian: None, dismissed: false, ended: None, log, working: None }
    }

    /// Gives the place to a `vvm run`.
    pub(super) fn settle(&mut self, guardian: Pid) {
        (self.guardian, self.dismissed, self.ended) = (Some(guardian), false, None);
    }

    /// The `vvm run` that is there is to go.
    pub(super) fn dismiss(&mut self) -> Option<Pid> {
        self.dismissed = true;
        self.guardian
    }

    /// The `vvm run` that was there is gone.
    pub(super) fn vacate(&mut self, ended: Ended) {
        (self.guardian, self.ended) = (None, Some(ended));
    }

    /// What the worker's log has to tell since the last call: beginnings and ends.
    ///
    /// # Errors
    /// When the log can't be read.
    pub(super) fn new_work(&mut self, family: &Family) -> Result<Vec<Event>, Unreadable> {
        // Asked before the log is read: what is gone by now writes no more.
        let is_gone = self.working.is_some_and(|last| {
            self.guardian.is_none() && !family.descendants().iter().any(|member| member.pid == last.worker)
        });
        let mut events = Vec::new();
        for line in self.log.new_lines()? {
            match line.word {
                Word::Begin => events.push(self.event(line, What::WorkBegan)),
                Word::Beat => {}
                Word::End => events.push(self.event(line, What::WorkEnded)),
            }
            self.working = (line.word != Word::End).then_some(line);
        }
        // Killed: its last line is the last that is known of it.
        if is_gone && let Some(last) = self.working.take() {
            events.push(self.event(last, What::WorkEnded));
        }
        Ok(events)
    }

    fn event(&self, line: Line, what: impl Fn(ielections::Epoch, Pid) -> What) -> Event {
        Event { at: line.at, lane: self.lane, what: what(line.epoch, line.worker) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{heartbeat::Log, rehearsal};
    use rustix::process::getpid;

    #[test]
    fn a_worker_that_is_killed_ends_with_its_last_line_once_its_place_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("A.log");
        let family = Family::of_this_process().unwrap();
        let mut place = Place::new(Lane::A, Reader::new(Lane::A, path.clone()));
        place.settle(rehearsal::process(7));
        let mut log = Log::open(&path, rehearsal::epoch(1)).unwrap();
        log.write(Word::Begin).unwrap();
        log.write(Word::Beat).unwrap();
        let [began] = place.new_work(&family).unwrap()[..] else { panic!("a beginning") };
        assert_eq!(began.what, What::WorkBegan(rehearsal::epoch(1), getpid()));
        assert_eq!(place.new_work(&family).unwrap(), []);
        place.vacate(Ended::Signalled(9));
        // This process, which wrote, is none of its own descendants.
        let [ended] = place.new_work(&family).unwrap()[..] else { panic!("an end") };
        assert_eq!(ended.what, What::WorkEnded(rehearsal::epoch(1), getpid()));
        assert!(ended.at > began.at);
        assert_eq!(place.new_work(&family).unwrap(), [], "it ends once");
    }

    #[test]
    fn a_worker_that_says_that_it_is_done_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("B.log");
        let mut place = Place::new(Lane::B, Reader::new(Lane::B, path.clone()));
        place.settle(rehearsal::process(7));
        let mut log = Log::open(&path, rehearsal::epoch(1)).unwrap();
        log.write(Word::Begin).unwrap();
        log.write(Word::End).unwrap();
        let events = place.new_work(&Family::of_this_process().unwrap()).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[1].what, What::WorkEnded(rehearsal::epoch(1), getpid()));
    }
}
