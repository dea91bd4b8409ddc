//! [`Run`]: does the steps, one after another. A wait looks at logs, the record, ends of processes, and signals.

use super::{
    DemoError,
    candidate::{Candidate, Done, NAME},
    checks::{Moments, RENEWALS},
};
use crate::runtime::{Signals, ends_a_candidate};
use ielections::{Epoch, ReadError, Slot, Ttl, TtlStorage as _, Vacant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, Write as _},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Runtime;
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{Family, Reap, reap};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, OpenError, SlotNumber};

/// How often the demo looks at everything.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

#[derive(Debug)]
pub(super) struct Run<'a> {
    storage: &'a str,
    ttl: Ttl,
    family: Family,
    signals: &'a mut Signals,
    pub(super) record: Record,
    pub(super) candidates: [Candidate; 3],
    pub(super) moments: Moments,
    began: Instant,
    looked_at: Instant,
    /// The step that is done now, from 1.
    step: usize,
    pub(super) stall: Stall,
    /// Whether lines are printed.
    is_shown: bool,
}

/// The longest time for which this machine did not run the demo, and in which step that was. It may not have run a leader
/// for as long either.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stall {
    pub(super) length: Duration,
    pub(super) step: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        storage: &'a str,
        ttl: Ttl,
        family: Family,
        signals: &'a mut Signals,
        record: Record,
        candidates: [Candidate; 3],
        is_shown: bool,
    ) -> Self {
        let (moments, began) = (Moments::default(), SystemClock::read());
        let (looked_at, step, stall) = (began, 1, Stall::default());
        Self {
            storage,
            ttl,
            family,
            signals,
            record,
            candidates,
            moments,
            began,
            looked_at,
            step,
            stall,
            is_shown,
        }
    }

    /// Does all steps.
    pub(super) fn play(&mut self) -> Result<(), DemoError> {
        self.begin(1, "Three candidates, one record: one candidate takes it, and its worker begins.")?;
        for place in 0..self.candidates.len() {
            self.start(place)?;
        }
        self.until("a first leader at work", renewed(0))?;

        self.begin(2, "The leader renews its record four times per TTL. The others stand by.")?;
        let first = self.until("renewals of the first leader", renewed(RENEWALS))?;

        // Right after a renewal, when the record has longest to stand.
        self.begin(3, "kill -9 of all processes of the leader, as if its machine died: a TTL must pass.")?;
        let crashed = self.act(first, Done::Crashed)?;
        self.moments.crashed = Some(crashed);
        let second = self.until("a leader after the crash", after(crashed))?;
        self.start(first)?;
        self.until("renewals after the crash", renewed(2))?;

        self.begin(4, "The leader is asked to stop: its worker ends first, then the record is released.")?;
        let asked = self.act(second, Done::AskedToStop)?;
        self.moments.asked_to_stop = Some(asked);
        let third = self.until("a leader after the clean stop", after(asked))?;
        self.until("the end of the leader that was asked to stop", ended(second))?;
        self.start(second)?;
        self.until("renewals after the clean stop", renewed(2))?;

        // Not right after a renewal: host and guardian must agree on the deadline.
        let ttl = self.ttl.get();
        self.until("the middle between two renewals", |run| {
            (run.record.written.until(SystemClock::read()) >= ttl / 8).then_some(())
        })?;
        self.begin(
            5,
            "The leader's host is stopped for ever. The kernel kills it before the next one leads.",
        )?;
        let stopped = self.act(third, Done::HostStopped)?;
        self.moments.host_stopped = Some(stopped);
        self.until("the end of the leader that hangs", ended(third))?;
        self.until("a leader after the hang", after(stopped))?;
        self.until("renewals after the hang", renewed(2))?;

        self.begin(6, "All are asked to stop. Then the workers' own logs are compared.")?;
        let rest = (0..self.candidates.len()).filter(|place| *place != third).collect::<Vec<_>>();
        for place in rest.iter().copied() {
            self.act(place, Done::AskedToStop)?;
        }
        self.until("the end of all", |run| {
            rest.iter().all(|place| ended(*place)(run).is_some()).then_some(())
        })
    }

    fn begin(&mut self, step: usize, what: &str) -> io::Result<()> {
        self.step = step;
        self.say(&format!("{step}/6  {what}"))
    }

    fn say(&self, line: &str) -> io::Result<()> {
        if self.is_shown { writeln!(io::stdout(), "{line}") } else { Ok(()) }
    }

    /// Prints what a candidate or its processes say, or what is done to them.
    fn tell(&self, name: &str, text: &str) -> io::Result<()> {
        self.say(&format!("{:>8.3} s  {name}  {text}", self.began.until(SystemClock::read()).as_secs_f64()))
    }

    /// Waits until `find` returns a value. `awaited` names it in the error.
    fn until<T>(
        &mut self,
        awaited: &'static str,
        find: impl Fn(&Run<'_>) -> Option<T>,
    ) -> Result<T, DemoError> {
        // Only ends a hang: checks decide what is late.
        let give_up_at = SystemClock::read().after(self.ttl.get() * 3 + Duration::from_secs(30));
        loop {
            if let Some(found) = find(self) {
                return Ok(found);
            }
            if SystemClock::read() >= give_up_at {
                return Err(DemoError::TimedOut(awaited));
            }
            self.look()?;
        }
    }

    /// Starts a `vvm run`.
    fn start(&mut self, place: usize) -> Result<(), DemoError> {
        let guardian = self.candidates[place].start(self.storage, self.ttl)?;
        Ok(self.tell(self.candidates[place].name, &format!("is started (vvm run, process {guardian})"))?)
    }

    /// Crashes the present `vvm run`, requests that it stops, or stops its host. Returns when.
    fn act(&mut self, place: usize, done: Done) -> Result<Instant, DemoError> {
        self.tell(self.candidates[place].name, done.text())?;
        // Before it is done: spans are measured from here.
        let now = SystemClock::read();
        self.candidates[place].signal(&self.family, done);
        Ok(now)
    }

    /// Returns the candidate that leads with a worker, and when that began.
    fn leader(&self) -> Option<(usize, Instant)> {
        let epoch = self.record.leader()?;
        let work = self.candidates.iter().enumerate().filter(|(_, candidate)| candidate.guardian.is_some());
        let mut work = work.flat_map(|(place, it)| it.work.iter().map(move |period| (place, period)));
        work.find(|(_, period)| period.epoch == epoch).map(|(place, period)| (place, period.first))
    }

    /// Looks at everything once.
    fn look(&mut self) -> Result<(), DemoError> {
        self.wait();
        let now = SystemClock::read();
        let length = self.looked_at.until(now);
        self.looked_at = now;
        if length > self.stall.length {
            self.stall = Stall { length, step: self.step };
        }
        self.record.look()?;
        let moments = &mut self.moments;
        if moments.crashed.is_none() {
            moments.renewals = self.record.renewals;
        } else if moments.asked_to_stop.is_none() {
            moments.released |= self.record.leader().is_none();
        }
        self.look_at_logs()?;
        let wrong_end = self.look_at_processes()?;
        let mut caught = self.signals.pending().into_iter().flatten().map(|caught| caught.signal);
        if let Some(signal) = caught.find(|signal| ends_a_candidate(*signal)) {
            return Err(DemoError::Interrupted(signal));
        }
        // Only now: Ctrl-C ends a candidate, too, that has not left the terminal's process group yet.
        wrong_end.map_or(Ok(()), Err)
    }

    /// Waits until it is time for the next look, or something has happened.
    fn wait(&mut self) {
        let mut fds = vec![PollFd::new(&*self.signals, PollFlags::IN)];
        let stopped = self.candidates.iter().position(|candidate| candidate.host.is_some());
        let host = stopped.and_then(|place| self.candidates[place].host.as_ref());
        fds.extend(host.map(|host| PollFd::new(host, PollFlags::IN)));
        // An interrupted wait only ends early.
        let _ = poll(&mut fds, Some(&INTERVAL));
        let is_dead = fds.get(1).is_some_and(|host| !host.revents().is_empty());
        if let Some(place) = stopped.filter(|_| is_dead) {
            self.moments.host_died = Some(SystemClock::read());
            self.candidates[place].host = None;
        }
    }

    fn look_at_logs(&mut self) -> Result<(), DemoError> {
        for place in 0..self.candidates.len() {
            let (name, lines) = (self.candidates[place].name, self.candidates[place].new_lines()?);
            lines.iter().try_for_each(|line| self.tell(name, line))?;
        }
        Ok(())
    }

    /// Returns an error if a `vvm run` has ended and should not have, or not in this way.
    fn look_at_processes(&mut self) -> Result<Option<DemoError>, DemoError> {
        let mut wrong = None;
        while let Reap::One(reaped) = reap() {
            // A guardian that was killed leaves other processes to the demo.
            let of = |candidate: &Candidate| candidate.guardian == Some(reaped.pid);
            let Some(place) = self.candidates.iter().position(of) else { continue };
            // What was written last.
            self.look_at_logs()?;
            let candidate = &mut self.candidates[place];
            let name = candidate.name;
            let is_right = candidate.should_end(reaped.ended);
            wrong = wrong.or_else(|| (!is_right).then_some(DemoError::WrongEnd(name, reaped.ended)));
            if let Some(result) = candidate.end() {
                // Guardian and demo both saw the end some time after it: the earlier one was nearer.
                self.moments.host_died = self.moments.host_died.into_iter().chain(result.host_ended).min();
                self.moments.deadline = result.deadline;
            }
            self.tell(name, &reaped.ended.to_string())?;
        }
        Ok(wrong)
    }
}

/// Finds a leader whose worker is at work and that has renewed so many times.
fn renewed(times: usize) -> impl Fn(&Run<'_>) -> Option<usize> {
    move |run| run.leader().filter(|_| run.record.renewals >= times).map(|(place, _)| place)
}

/// Finds the leader whose worker began after this moment.
fn after(moment: Instant) -> impl Fn(&Run<'_>) -> Option<usize> {
    move |run| run.leader().filter(|(_, began)| *began > moment).map(|(place, _)| place)
}

/// Finds whether the `vvm run` of a candidate has ended.
fn ended(place: usize) -> impl Fn(&Run<'_>) -> Option<()> {
    move |run| run.candidates[place].guardian.is_none().then_some(())
}

/// The record that the candidates compete for, as seen from outside.
#[derive(Debug)]
pub(super) struct Record {
    runtime: Runtime,
    pub(super) storage: ElectionsTtlStorage,
    key: ElectionKey,
    seen: Slot,
    /// How often it was seen to be written under the present epoch, the election not included.
    renewals: usize,
    /// When it was last seen to be written.
    written: Instant,
}

impl Record {
    /// Opens the storage at `url`.
    pub(super) fn open(url: &str, runtime: Runtime, clock: SystemClock) -> Result<Self, OpenError> {
        let storage = ElectionsTtlStorage::new(runtime.block_on(vvm_storage::open(url, Arc::new(clock)))?);
        let slot = SlotNumber::new(NonZeroU32::MIN);
        let key = ElectionKey { cluster: ClusterName::from(NAME), slot };
        let (seen, written) = (Slot::Vacant(Vacant::default()), SystemClock::read());
        Ok(Self { runtime, storage, key, seen, renewals: 0, written })
    }

    /// Reads the record. Fails if the storage refuses for good; one that does not answer shows no change.
    fn look(&mut self) -> Result<(), ReadError> {
        let slot = match self.runtime.block_on(self.storage.get(&self.key)) {
            Ok(slot) => slot,
            Err(ReadError::Unavailable(_)) => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        let version = |slot: &Slot| slot.entry().map(|entry| entry.version);
        let before = self.leader();
        if version(&slot) != version(&self.seen) {
            self.written = SystemClock::read();
            self.renewals += 1;
        }
        self.seen = slot;
        if self.leader() != before {
            self.renewals = 0;
        }
        Ok(())
    }

    /// Returns the epoch of the leader that it names.
    fn leader(&self) -> Option<Epoch> {
        self.seen.entry().map(|entry| entry.epoch)
    }

    /// Closes the storage.
    pub(super) fn close(self) {
        self.runtime.block_on(self.storage.close());
    }
}
