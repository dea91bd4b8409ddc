//! The worker of the demo, and its log: a line every 20 ms while it works.
//!
//! A line has a fixed width that divides a page: the kernel copies it whole or not at all, even if its writer
//! is killed.

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
    env,
    fs::File,
    io::{self, Read as _, Write as _},
    path::Path,
    process::ExitCode,
};
use vvm_clock::{Instant, SystemClock};

/// How long a worker waits between two lines.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Width of a line, its newline included: room for 20, 19, 10 and 10 digits.
const WIDTH: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) at: Instant,
    pub(super) epoch: Epoch,
    pub(super) worker: Pid,
    /// How many lines this worker wrote before.
    pub(super) count: u32,
}

impl Line {
    pub(super) fn to_text(self) -> String {
        let Self { at, epoch, worker, count } = self;
        let text = format!("{} {epoch} {worker} {count}", at.as_nanos());
        format!("{text:<width$}\n", width = WIDTH - 1)
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        let words = str::from_utf8(text).ok()?.strip_suffix('\n')?.split_ascii_whitespace();
        let [at, epoch, worker, count] = words.collect::<Vec<_>>()[..] else { return None };
        let (at, epoch) = (Instant::from_nanos(at.parse().ok()?), Epoch::new(epoch.parse().ok()?).ok()?);
        Some(Self { at, epoch, worker: Pid::from_raw(worker.parse().ok()?)?, count: count.parse().ok()? })
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
    let mut write = |count| {
        let line = Line { at: SystemClock::read(), epoch, worker: getpid(), count };
        log.write_all(line.to_text().as_bytes())
    };
    // Before anything else: work that precedes the first line could overlap unseen.
    write(0)?;
    let mut signals = Signals::catch()?;
    for count in 1.. {
        // An interrupted wait only writes the next line early.
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&INTERVAL));
        write(count)?;
        if signals.pending().into_iter().flatten().any(|caught| asks_to_stop(caught.signal)) {
            break;
        }
    }
    Ok(())
}

/// The log of a candidate's workers, as the demo reads it.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    text: Vec<u8>,
    /// How many lines of the text were returned.
    returned: usize,
}

impl Log {
    /// Makes an empty log at `path`.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create_new(true).open(path)?;
        Ok(Self { file, text: Vec::new(), returned: 0 })
    }

    /// Returns the whole lines that are new since the last call. Fails if one is damaged.
    pub(super) fn new_lines(&mut self) -> io::Result<Vec<Line>> {
        self.file.read_to_end(&mut self.text)?;
        let new = self.text.chunks_exact(WIDTH).skip(self.returned);
        let lines = new.map(|text| Line::from_text(text).ok_or(io::ErrorKind::InvalidData));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        self.returned += lines.len();
        Ok(lines)
    }

    /// Returns whether the last line is whole.
    pub(super) fn ends_with_a_line(&self) -> bool {
        self.text.len().is_multiple_of(WIDTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::sample;

    #[test]
    fn line_of_fixed_width_is_read_as_written_whole_and_undamaged_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("A.log");
        let mut log = Log::create(&path).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        let (at, epoch) = (Instant::from_nanos(u64::MAX), Epoch::new(Epoch::MAX).unwrap());
        let longest = Line { at, epoch, worker: sample::process(i32::MAX), count: u32::MAX };
        for line in [longest, sample::line(0, 1, 1, 0)] {
            let text = line.to_text();
            assert_eq!((text.len(), 4096 % WIDTH), (WIDTH, 0));
            writer.write_all(&text.as_bytes()[..9]).unwrap();
            assert_eq!((log.new_lines().unwrap(), log.ends_with_a_line()), (vec![], false));
            writer.write_all(&text.as_bytes()[9..]).unwrap();
            assert_eq!((log.new_lines().unwrap(), log.ends_with_a_line()), (vec![line], true));
        }
        writer.write_all(longest.to_text().replace(' ', "x").as_bytes()).unwrap();
        log.new_lines().unwrap_err();
    }
}
