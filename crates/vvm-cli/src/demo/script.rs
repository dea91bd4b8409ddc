//! [`Run`]: does the steps, one after another. A wait looks at logs, the record, ends of processes, and signals.

use super::{
    DemoArgs, DemoError,
    candidate::{Candidate, NAME},
    checks::RENEWALS,
    course::{CandidateEnd, Course},
    worker::WorkPeriod,
};
use crate::runtime::{Signals, ends_a_candidate};
use ielections::{Epoch, ReadError, Slot, TtlStorage as _, Vacant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{Family, Reap, reap};
use vvm_storage::{BeyondLimits, ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

#[derive(Debug)]
pub(super) struct Run<'a> {
    demo: &'a DemoArgs,
    storage: &'a str,
    family: Family,
    signals: &'a mut Signals,
    record: WatchedRecord,
    candidates: [Candidate; 3],
    course: Course,
    looked_at: Instant,
    step: usize,
    waits_before: Duration,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        demo: &'a DemoArgs,
        folder: &Path,
        storage: &'a str,
        family: Family,
        signals: &'a mut Signals,
    ) -> Result<Self, DemoError> {
        let record = WatchedRecord::open(storage)?;
        let least = record.storage.limits().min_ttl;
        if demo.ttl.get() < least {
            return Err(BeyondLimits::Ttl { ttl: demo.ttl, least }.into());
        }
        let [a, b, c] = ["A", "B", "C"].map(|name| Candidate::new(name, folder));
        let (candidates, looked_at) = ([a?, b?, c?], SystemClock::read());
        let (course, step, waits_before) = (Course::new(looked_at), 1, processor_waits());
        Ok(Self { demo, storage, family, signals, record, candidates, course, looked_at, step, waits_before })
    }

    pub(super) fn play(&mut self) -> Result<(), DemoError> {
        self.begin(1, "Three candidates, one record: one candidate takes it, and its worker begins.")?;
        for place in 0..self.candidates.len() {
            self.start(place)?;
        }
        self.until("a first leader at work", |run| run.renewed(0))?;

        self.begin(2, "The leader renews its record four times per TTL. The others stand by.")?;
        let first = self.until("renewals of the first leader", |run| run.renewed(RENEWALS))?;

        // Right after a renewal, when the record has longest to stand.
        self.begin(3, "kill -9 of all processes of the leader, as if its machine died: a TTL must pass.")?;
        let crashed = self.act(first, CandidateEnd::Crashed)?;
        let second = self.until("a leader after the crash", |run| run.leader_after(crashed))?;
        self.start(first)?;
        self.until("renewals after the crash", |run| run.renewed(2))?;

        self.begin(4, "The leader is asked to stop: its worker ends first, then the record is released.")?;
        let asked = self.act(second, CandidateEnd::AskedToStop)?;
        let third = self.until("a leader after the clean stop", |run| run.leader_after(asked))?;
        self.until("the end of the leader that was asked to stop", |run| run.ended(&[second]))?;
        self.start(second)?;
        self.until("renewals after the clean stop", |run| run.renewed(2))?;

        // Not right after a renewal: host and guardian must agree on the deadline.
        let pause = self.demo.ttl.get() / 8;
        self.until("the middle between two renewals", |run| {
            (run.record.written.until(SystemClock::read()) >= pause).then_some(())
        })?;
        self.begin(
            5,
            "The leader's host is stopped for ever. The kernel kills it before the next one leads.",
        )?;
        let stopped = self.act(third, CandidateEnd::HostStopped)?;
        self.until("the end of the leader that hangs", |run| run.ended(&[third]))?;
        self.until("a leader after the hang", |run| run.leader_after(stopped))?;
        self.until("renewals after the hang", |run| run.renewed(2))?;

        self.begin(6, "All are asked to stop. Then the workers' own logs are compared.")?;
        let rest = (0..self.candidates.len()).filter(|place| *place != third).collect::<Vec<_>>();
        for place in &rest {
            self.act(*place, CandidateEnd::AskedToStop)?;
        }
        self.until("the end of all", |run| run.ended(&rest))
    }

    /// Reads what is left of the workers' logs, none of which runs any more. Returns the work in the order of its begin.
    pub(super) fn end(self) -> io::Result<(Course, Vec<WorkPeriod>)> {
        self.record.runtime.block_on(self.record.storage.close());
        let mut work = Vec::new();
        for mut candidate in self.candidates {
            candidate.new_lines()?;
            work.append(&mut candidate.work);
        }
        work.sort_by_key(|period| period.first);
        Ok((self.course, work))
    }

    fn begin(&mut self, step: usize, what: &str) -> io::Result<()> {
        (self.step, self.waits_before) = (step, processor_waits());
        self.say(&format!("{step}/6  {what}"))
    }

    fn say(&self, line: &str) -> io::Result<()> {
        if self.demo.json { Ok(()) } else { writeln!(io::stdout(), "{line}") }
    }

    fn tell(&self, name: &str, text: &str) -> io::Result<()> {
        self.say(&format!(
            "{:>8.3} s  {name}  {text}",
            self.course.began.until(SystemClock::read()).as_secs_f64()
        ))
    }

    fn until<T>(
        &mut self,
        awaited: &'static str,
        find: impl Fn(&Run<'_>) -> Option<T>,
    ) -> Result<T, DemoError> {
        // Only ends a hang: checks decide what is late.
        let give_up_at = SystemClock::read().after(self.demo.ttl.get() * 3 + Duration::from_secs(30));
        loop {
            if let Some(found) = find(self) {
                return Ok(found);
            }
            if SystemClock::read() >= give_up_at {
                return Err(DemoError::Failed(format!("timed out: did not see {awaited}")));
            }
            self.look()?;
        }
    }

    fn start(&mut self, place: usize) -> Result<(), DemoError> {
        let guardian = self.candidates[place].start(self.storage, self.demo.ttl)?;
        self.course.started(self.candidates[place].name);
        Ok(self.tell(self.candidates[place].name, &format!("is started (vvm run, process {guardian})"))?)
    }

    fn act(&mut self, place: usize, done: CandidateEnd) -> Result<Instant, DemoError> {
        self.tell(self.candidates[place].name, done.text())?;
        // Before it is done: spans are measured from here.
        let now = SystemClock::read();
        self.course.acts.push((self.candidates[place].name, done, now));
        if done == CandidateEnd::Crashed {
            self.course.renewed = Some(self.record.written);
        }
        self.candidates[place].signal(&self.family, done);
        Ok(now)
    }

    fn leader(&self) -> Option<(usize, Instant)> {
        let epoch = self.record.leader()?;
        let work = self.candidates.iter().enumerate().filter(|(_, candidate)| candidate.guardian.is_some());
        let mut work = work.flat_map(|(place, it)| it.work.iter().map(move |period| (place, period)));
        work.find(|(_, period)| period.epoch == epoch).map(|(place, period)| (place, period.first))
    }

    fn renewed(&self, times: usize) -> Option<usize> {
        self.leader().filter(|_| self.record.renewals >= times).map(|(place, _)| place)
    }

    fn leader_after(&self, moment: Instant) -> Option<usize> {
        self.leader().filter(|(_, began)| *began > moment).map(|(place, _)| place)
    }

    fn ended(&self, places: &[usize]) -> Option<()> {
        places.iter().all(|place| self.candidates[*place].guardian.is_none()).then_some(())
    }

    fn look(&mut self) -> Result<(), DemoError> {
        self.wait();
        let now = SystemClock::read();
        // The scheduler prefers the demo, which sleeps, to candidates, which compute: it alone notices little.
        let late = self.looked_at.until(now).max(processor_waits().saturating_sub(self.waits_before));
        self.looked_at = now;
        self.record.look()?;
        let course = &mut self.course;
        course.stall = course.stall.max((late, self.step));
        if course.moment(CandidateEnd::Crashed).is_none() {
            course.renewals = self.record.renewals;
        } else if course.moment(CandidateEnd::AskedToStop).is_none() {
            course.released |= self.record.leader().is_none();
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

    fn wait(&mut self) {
        let mut fds = vec![PollFd::new(&*self.signals, PollFlags::IN)];
        let host = self.candidates.iter().find_map(|candidate| candidate.host.as_ref());
        fds.extend(host.map(|host| PollFd::new(host, PollFlags::IN)));
        let _ = poll(&mut fds, Some(&INTERVAL));
        if fds.get(1).is_some_and(|host| !host.revents().is_empty()) {
            self.course.host_died = Some(SystemClock::read());
            self.candidates.iter_mut().for_each(|candidate| candidate.host = None);
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
            self.look_at_logs()?;
            let candidate = &mut self.candidates[place];
            let (name, ended) = (candidate.name, reaped.ended);
            if !candidate.should_end(ended) {
                wrong.get_or_insert(DemoError::Failed(format!("{name} {ended}, and should not have")));
            }
            candidate.end(&mut self.course);
            self.course.ended(name);
            self.tell(name, &ended.to_string())?;
        }
        Ok(wrong)
    }
}

/// Returns how long processes of this machine have waited for a processor since its boot, by the kernel's count. Zero if
/// the kernel does not count.
fn processor_waits() -> Duration {
    let counted = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    // `some avg10=0.70 avg60=8.06 avg300=14.90 total=5725136236`, in microseconds.
    let some = counted.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.rsplit_once("total=")?.1.parse().ok());
    Duration::from_micros(total.unwrap_or_default())
}

#[derive(Debug)]
struct WatchedRecord {
    runtime: Runtime,
    storage: ElectionsTtlStorage,
    key: ElectionKey,
    seen: Slot,
    /// How often it was seen to be written under the present epoch, the election not included.
    renewals: usize,
    written: Instant,
}

impl WatchedRecord {
    fn open(url: &str) -> Result<Self, DemoError> {
        let (runtime, clock) = (Builder::new_current_thread().build()?, Arc::new(SystemClock::start()?));
        let storage = runtime.block_on(vvm_storage::open(url, clock)).map_err(DemoError::failed)?;
        let key = ElectionKey { cluster: ClusterName::from(NAME), slot: SlotNumber::FIRST };
        let (storage, seen) = (ElectionsTtlStorage::new(storage), Slot::Vacant(Vacant::default()));
        Ok(Self { runtime, storage, key, seen, renewals: 0, written: SystemClock::read() })
    }

    /// Reads the record. Fails if the storage refuses for good; one that does not answer shows no change.
    fn look(&mut self) -> Result<(), DemoError> {
        let slot = match self.runtime.block_on(self.storage.get(&self.key)) {
            Ok(slot) => slot,
            Err(ReadError::Unavailable(_)) => return Ok(()),
            Err(refusal) => return Err(DemoError::Failed(format!("the record can't be read: {refusal}"))),
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

    fn leader(&self) -> Option<Epoch> {
        self.seen.entry().map(|entry| entry.epoch)
    }
}
