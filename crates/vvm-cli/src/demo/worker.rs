//! The worker of the demo, and its log: a line every 20 ms while it works. [`WorkPeriod`]: when it worked, by
//! that log.
//!
//! A line has a fixed width that divides a page: the kernel copies it whole or not at all, even if its writer dies.

use super::DemoWorkerArgs;
use crate::{
    announce::say,
    exit,
    runtime::{Signals, asks_to_stop},
};
use ielections::Epoch;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, getpid},
};
use std::{
    env, fmt,
    fs::File,
    io::{self, Read as _, Write as _},
    path::Path,
    process::ExitCode,
};
use vvm_clock::{Instant, SystemClock};

const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Width of a line, its newline included: room for 20, 19 and 10 digits.
const WIDTH: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkerLine {
    at: Instant,
    epoch: Epoch,
    pub(super) worker: Pid,
}

impl WorkerLine {
    fn to_text(self) -> String {
        let Self { at, epoch, worker } = self;
        let text = format!("{} {epoch} {worker}", at.as_nanos());
        format!("{text:<width$}\n", width = WIDTH - 1)
    }

    pub(super) fn from_text(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok().filter(|text| text.len() == WIDTH)?;
        let words = text.strip_suffix('\n')?.split_ascii_whitespace();
        let [at, epoch, worker] = words.collect::<Vec<_>>()[..] else { return None };
        let (at, epoch) = (Instant::from_nanos(at.parse().ok()?), Epoch::new(epoch.parse().ok()?).ok()?);
        Some(Self { at, epoch, worker: Pid::from_raw(worker.parse().ok()?)? })
    }
}

pub(crate) fn main(worker: &DemoWorkerArgs) -> ExitCode {
    let epoch = env::var("VVM_LEADER_EPOCH").ok().and_then(|epoch| Epoch::new(epoch.parse().ok()?).ok());
    let Some(epoch) = epoch else {
        say!("this command is for the workers of `vvm demo`: it needs VVM_LEADER_EPOCH");
        return exit::MISUSE.into();
    };
    let Err(refusal) = work(&worker.log, epoch) else { return ExitCode::SUCCESS };
    say!("the worker of `vvm demo` can't write its log: {refusal}");
    exit::SYSTEM.into()
}

fn work(log: &Path, epoch: Epoch) -> io::Result<()> {
    let mut log = File::options().append(true).open(log)?;
    let mut write = || {
        let line = WorkerLine { at: SystemClock::read(), epoch, worker: getpid() };
        log.write_all(line.to_text().as_bytes())
    };
    // Before anything else: work that precedes the first line could overlap unseen.
    write()?;
    let mut signals = Signals::catch()?;
    loop {
        // An interrupted wait only writes the next line early.
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&INTERVAL));
        write()?;
        if signals.pending().into_iter().flatten().any(|caught| asks_to_stop(caught.signal)) {
            return Ok(());
        }
    }
}

#[derive(Debug)]
pub(super) struct Log {
    file: File,
    rest: Vec<u8>,
}

impl Log {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create_new(true).open(path)?;
        Ok(Self { file, rest: Vec::new() })
    }

    pub(super) fn new_lines(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.file.read_to_end(&mut self.rest)?;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole = self.rest.drain(..whole).collect::<Vec<_>>();
        Ok(whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
    }
}

/// The work of one worker under one epoch, from its first line to its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkPeriod {
    pub(super) name: &'static str,
    pub(super) epoch: Epoch,
    worker: Pid,
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl WorkPeriod {
    /// Adds a line of this candidate's log. Returns whether it begins a period of work.
    pub(super) fn add(periods: &mut Vec<Self>, name: &'static str, line: WorkerLine) -> bool {
        let WorkerLine { at, epoch, worker } = line;
        let same = |period: &&mut Self| (period.name, period.epoch, period.worker) == (name, epoch, worker);
        let known = periods.iter_mut().find(same);
        let is_new = known.is_none();
        match known {
            Some(period) => (period.first, period.last) = (period.first.min(at), period.last.max(at)),
            None => periods.push(Self { name, epoch, worker, first: at, last: at }),
        }
        is_new
    }
}

impl fmt::Display for WorkPeriod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}'s worker {} of epoch {}", self.name, self.worker, self.epoch)
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    const BEGAN: Instant = Instant::from_nanos(500_000_000_000);

    pub(in crate::demo) fn at(millis: u64) -> Instant {
        BEGAN.after(Duration::from_millis(millis))
    }

    pub(in crate::demo) fn epoch(leader: u64) -> Epoch {
        Epoch::new(1_795_243_929_000 + leader * 1_000).unwrap()
    }

    fn line(millis: u64, leader: u64, worker: i32) -> WorkerLine {
        WorkerLine { at: at(millis), epoch: epoch(leader), worker: Pid::from_raw(worker).unwrap() }
    }

    /// Returns the work of workers with a line each millisecond: candidate, process, epoch, from, until.
    pub(in crate::demo) fn work(workers: &[(&'static str, i32, u64, u64, u64)]) -> Vec<WorkPeriod> {
        let mut periods = Vec::new();
        for (name, worker, leader, from, until) in workers {
            for at in *from..=*until {
                WorkPeriod::add(&mut periods, name, line(at, *leader, *worker));
            }
        }
        periods.sort_by_key(|period| period.first);
        periods
    }

    #[test]
    fn line_of_fixed_width_is_read_as_written_whole_and_undamaged_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("A.log");
        let mut log = Log::create(&path).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        let longest = WorkerLine { at: Instant::from_nanos(u64::MAX), ..line(0, 1, i32::MAX) };
        let longest = WorkerLine { epoch: Epoch::new(Epoch::MAX).unwrap(), ..longest };
        for line in [longest, line(0, 1, 1)] {
            let text = line.to_text();
            assert_eq!((text.len(), 4096 % WIDTH), (WIDTH, 0));
            writer.write_all(&text.as_bytes()[..9]).unwrap();
            assert!(log.new_lines().unwrap().is_empty());
            writer.write_all(&text.as_bytes()[9..]).unwrap();
            let lines = log.new_lines().unwrap();
            assert_eq!(
                lines.iter().map(|text| WorkerLine::from_text(text)).collect::<Vec<_>>(),
                [Some(line)]
            );
        }
        for damaged in [longest.to_text().replace(' ', "x"), longest.to_text()[1..].to_owned()] {
            assert_eq!(WorkerLine::from_text(damaged.as_bytes()), None);
        }
    }

    #[test]
    fn workers_that_follow_each_other_do_not_overlap() {
        let work = work(&[("A", 10, 1, 0, 4), ("A", 12, 3, 20, 25), ("B", 11, 2, 5, 19)]);
        assert_eq!((work.len(), overlaps(&work)), (3, vec![]));
    }

    #[test]
    fn every_overlap_is_found_down_to_one_moment() {
        let later = |workers: &[_]| {
            overlaps(&work(workers)).iter().map(|pair| pair[1].worker.as_raw_pid()).collect::<Vec<_>>()
        };
        assert_eq!(later(&[("A", 10, 1, 0, 5), ("B", 11, 2, 5, 9)]), [11]);
        assert_eq!(later(&[("A", 10, 1, 0, 50), ("A", 11, 2, 40, 60)]), [11], "of one candidate");
        let with_one_before_the_last = [("A", 10, 1, 0, 100), ("B", 11, 2, 10, 20), ("B", 12, 3, 30, 40)];
        assert_eq!(later(&with_one_before_the_last), [11, 12]);
    }
}
