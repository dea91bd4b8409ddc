//! [`Run`]: performs steps on candidates, and waits for events. A wait looks at the record, the workers'
//! logs, ends of processes, and signals.

use super::{
    candidate::Candidate,
    record::Record,
    timeline::{CandidateId, Event, Timeline, What},
    view::{Output, Scene},
};
use crate::runtime::{Signals, ends_a_candidate};
use ielections::{ReadError, Ttl};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use std::{io, time::Duration};
use vvm_clock::SystemClock;
use vvm_containment::{Family, Reap, reap};

/// How often everything is looked at.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("interrupted")]
    Interrupted(Signal),
    #[error("timed out: did not see {0}")]
    TimedOut(&'static str),
    #[error("{0}, and should not have")]
    WrongEnd(Event),
    #[error("the record can't be read: {0}")]
    Record(#[from] ReadError),
    #[error("a log can't be read, a process can't be started, or standard output is gone: {0}")]
    System(#[from] io::Error),
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) storage: String,
    pub(super) ttl: Ttl,
    pub(super) family: Family,
    pub(super) signals: Signals,
    pub(super) record: Record,
    pub(super) output: Output,
    pub(super) candidates: [Candidate; 3],
    pub(super) timeline: Timeline,
    /// What is shown at present.
    pub(super) step: &'static str,
}

impl Run {
    /// Begins a step.
    pub(super) fn begin(&mut self, step: &'static str) -> Result<(), RunError> {
        self.step = step;
        Ok(self.output.line(step)?)
    }

    /// Waits until `find` returns a value. `awaited` names it in the error.
    pub(super) fn until<T>(
        &mut self,
        awaited: &'static str,
        find: impl Fn(&Timeline) -> Option<T>,
    ) -> Result<T, RunError> {
        // Only ends a hang: checks decide what is late.
        let give_up_at = SystemClock::read().after(self.ttl.get() * 3 + Duration::from_secs(30));
        loop {
            if let Some(found) = find(&self.timeline) {
                return Ok(found);
            }
            if SystemClock::read() >= give_up_at {
                return Err(RunError::TimedOut(awaited));
            }
            self.look()?;
        }
    }

    /// Starts a `vvm run`.
    pub(super) fn start(&mut self, id: CandidateId) -> Result<(), RunError> {
        let guardian = self.candidates[id as usize].start(&self.storage, self.ttl)?;
        self.note(id, What::Started(guardian))
    }

    /// Crashes the present `vvm run`, requests that it stops, or stops its host.
    pub(super) fn act(&mut self, id: CandidateId, what: What) -> Result<(), RunError> {
        // Noted before it is done: spans are measured from here.
        self.note(id, what)?;
        self.candidates[id as usize].signal(&self.family, what);
        Ok(())
    }

    /// Looks at everything once.
    fn look(&mut self) -> Result<(), RunError> {
        self.wait();
        if let Some((id, what)) = self.record.look()? {
            self.note(id, what)?;
        }
        self.look_at_logs()?;
        let wrong_end = self.look_at_processes()?;
        for caught in self.signals.pending().into_iter().flatten() {
            match caught.signal {
                Signal::TSTP => self.output.suspend()?,
                signal if ends_a_candidate(signal) => return Err(RunError::Interrupted(signal)),
                _ => {}
            }
        }
        // Only now: Ctrl-C ends a candidate, too, that has not left the terminal's process group yet.
        wrong_end.map_or(Ok(()), Err)?;
        let (timeline, now) = (&self.timeline, SystemClock::read());
        Ok(self.output.draw(&Scene { timeline, step: self.step, ttl: self.ttl, now })?)
    }

    /// Waits until it is time for the next look, or something has happened.
    fn wait(&mut self) {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let stopped = self.candidates.iter().position(|candidate| candidate.host.is_some());
        let host = stopped.and_then(|place| self.candidates[place].host.as_ref());
        fds.extend(host.map(|host| PollFd::new(host, PollFlags::IN)));
        // An interrupted wait only ends early.
        let _ = poll(&mut fds, Some(&INTERVAL));
        let is_dead = fds.get(1).is_some_and(|host| !host.revents().is_empty());
        if let Some(place) = stopped.filter(|_| is_dead) {
            self.candidates[place].host_died = Some(SystemClock::read());
            self.candidates[place].host = None;
        }
    }

    fn look_at_logs(&mut self) -> Result<(), RunError> {
        for id in CandidateId::ALL {
            for event in self.candidates[id as usize].new_work()? {
                self.tell(event)?;
            }
        }
        Ok(())
    }

    /// Returns an error if a `vvm run` has ended and should not have, or not in this way.
    fn look_at_processes(&mut self) -> Result<Option<RunError>, RunError> {
        let mut wrong = None;
        while let Reap::One(reaped) = reap() {
            // A guardian that was killed leaves other processes to the demo.
            let of = |candidate: &Candidate| candidate.guardian == Some(reaped.pid);
            let Some(place) = self.candidates.iter().position(of) else { continue };
            // What the worker wrote last.
            self.look_at_logs()?;
            let candidate = &mut self.candidates[place];
            let left = Event { at: SystemClock::read(), id: candidate.id, what: What::Left(reaped.ended) };
            wrong =
                wrong.or_else(|| (!candidate.should_end(reaped.ended)).then_some(RunError::WrongEnd(left)));
            for event in candidate.ended(left) {
                self.tell(event)?;
            }
        }
        Ok(wrong)
    }

    /// Records an event that happens now.
    fn note(&mut self, id: CandidateId, what: What) -> Result<(), RunError> {
        self.tell(Event { at: SystemClock::read(), id, what })
    }

    fn tell(&mut self, event: Event) -> Result<(), RunError> {
        self.timeline.add(event);
        Ok(self.output.line(&event.to_line(self.timeline.began))?)
    }
}
