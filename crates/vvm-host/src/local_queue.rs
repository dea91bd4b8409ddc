//! [`LocalQueue`]: the starts on one machine that wait until they become candidates. Starts of one line pile up, as of
//! a cron job that hangs. As many of them as there are slots, and one more, are candidates, with their processes and
//! connections. The others wait here, each in one process, without a connection. Locks of files (flock(2)) in the
//! folder of local wake-ups decide which start is a candidate. The kernel releases them when a process ends. They
//! decide only which start waits, never which one leads: I1 rests on the storage alone. A lock that is held too long
//! costs promptness, and one that is held by two processes costs a connection.

use crate::{
    local_wakeups::{LocalDir, UnfitFolder, folder::hash},
    once::PeriodOrder,
};
use ielections::{Entropy as _, OsEntropy};
use std::{
    cmp::Ordering,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The most slots of a name whose starts wait here: each slot has a file.
const MOST_SLOTS: u32 = 32;

/// How long a free place waits for the start whose turn it is, which may be stopped (Ctrl-Z).
const PATIENCE: Duration = Duration::from_secs(5);

/// One start in the queue of its machine.
#[derive(Debug)]
pub struct LocalQueue {
    folder: PathBuf,
    prefix: String,
    candidates: u32,
    ticket: Ticket,
    /// Since when it has seen a free place that is another start's turn.
    passed_since: Option<Instant>,
    _lock: LockedFile,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Ticket {
    arrived: Instant,
    path: PathBuf,
    /// Of a `vvm once`; empty for others.
    period: String,
}

/// The right of a start to be a candidate, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Admission {
    _lock: LockedFile,
}

/// A file of this process, which removes it before it releases the lock.
#[derive(Debug)]
struct LockedFile {
    path: PathBuf,
    _file: File,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Another start takes a file that stays.
        let _ = fs::remove_file(&self.path);
    }
}

impl LockedFile {
    /// Locks the file `path`, and writes `text` to it. `None` if another process holds it, or is about to remove it.
    fn take(path: PathBuf, text: &str) -> io::Result<Option<Self>> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(cause)) => return Err(cause),
        }
        // The last holder has removed it meanwhile: others lock a new one.
        if fs::metadata(&path).map(|found| found.ino()).ok() != Some(file.metadata()?.ino()) {
            return Ok(None);
        }
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        Ok(Some(Self { path, _file: file }))
    }
}

fn held(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match file.try_lock_shared() {
        // Shared, so that two starts that look at once don't keep each other out. Released with the file.
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => io::read_to_string(file).map(Some),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

impl LocalQueue {
    /// Joins the queue of the starts that have the same `line`, for `slots` slots. `period` is that of a `vvm once`,
    /// and empty for others. `None` without a folder, and for many slots.
    pub fn join(dir: &LocalDir, line: &str, slots: u32, period: &str) -> Result<Option<Self>, UnfitFolder> {
        let Some(folder) = dir.make()?.filter(|_| slots <= MOST_SLOTS) else { return Ok(None) };
        let unusable = |cause| UnfitFolder::Unusable { path: folder.clone(), cause };
        let prefix = format!("queue-{:016x}", hash(line));
        let (arrived, id) = (SystemClock::read(), OsEntropy::default().next_u64());
        // It gets its name when it is locked, so that no other start takes it for one that was left behind.
        let path = folder.join(format!("{prefix}-new-{id:016x}"));
        let lock = LockedFile::take(path, period).map_err(unusable)?;
        let mut lock = lock.ok_or_else(|| unusable(io::ErrorKind::ResourceBusy.into()))?;
        let path = folder.join(format!("{prefix}-wait-{:020}-{id:016x}", arrived.as_nanos()));
        fs::rename(&lock.path, &path).map_err(unusable)?;
        lock.path.clone_from(&path);
        let ticket = Ticket { arrived, path, period: period.into() };
        Ok(Some(Self { folder, prefix, candidates: slots + 1, ticket, passed_since: None, _lock: lock }))
    }

    /// Makes this start a candidate if it is its turn: a place is free, all candidates have its period, and no start
    /// that waits comes first. Never blocks.
    pub fn try_enter(mut self) -> io::Result<Result<Admission, Self>> {
        let place = |number| self.folder.join(format!("{}-{number}", self.prefix));
        let (mut free, mut candidates) = (None, Vec::new());
        for place in (0..self.candidates).map(place) {
            match held(&place)? {
                Some(period) => candidates.push(period),
                None => free = free.or(Some(place)),
            }
        }
        // One period at a time: when it has ended, the oldest of those that wait is the next.
        let free = free.filter(|_| candidates.iter().all(|period| *period == self.ticket.period));
        let Some(free) = free else {
            self.passed_since = None;
            return Ok(Err(self));
        };
        let waiting = self.waiting()?;
        let is_alone = candidates.is_empty();
        let turn = if is_alone { next(&waiting) } else { next_of(&waiting, &self.ticket.period) };
        let now = SystemClock::read();
        if turn.is_some_and(|turn| *turn != self.ticket)
            && now.since(*self.passed_since.get_or_insert(now)) < PATIENCE
        {
            return Ok(Err(self));
        }
        Ok(match LockedFile::take(free, &self.ticket.period)? {
            Some(lock) => Ok(Admission { _lock: lock }),
            None => Err(self),
        })
    }

    /// Returns the starts that wait. Removes the files of those that have ended.
    fn waiting(&self) -> io::Result<Vec<Ticket>> {
        let mut waiting = Vec::new();
        let prefix = format!("{}-wait-", self.prefix);
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let arrived = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.get(..20)?.parse().ok());
            let Some(arrived) = arrived.map(Instant::from_nanos) else { continue };
            if path == self.ticket.path {
                waiting.push(self.ticket.clone());
            } else if let Some(period) = held(&path)? {
                waiting.push(Ticket { arrived, path, period });
            } else {
                let _ = fs::remove_file(path);
            }
        }
        Ok(waiting)
    }
}

/// Returns the start that comes first: of those with periods comparable to the first arrival's, that of the oldest one.
fn next(waiting: &[Ticket]) -> Option<&Ticket> {
    let first = waiting.iter().min_by_key(|ticket| ticket.arrived)?;
    let Some(order) = PeriodOrder::parse(&first.period) else { return Some(first) };
    let comparable = waiting.iter().filter_map(|ticket| {
        PeriodOrder::parse(&ticket.period)
            .filter(|other| other.is_comparable_to(&order))
            .map(|it| (it, ticket))
    });
    let by_age = |(one, first): &(PeriodOrder, &Ticket), (other, second): &(PeriodOrder, &Ticket)| {
        let ages = one.partial_cmp(other).unwrap_or(Ordering::Equal);
        ages.then(first.arrived.cmp(&second.arrived))
    };
    comparable.min_by(by_age).map(|(_, ticket)| ticket)
}

fn next_of<'all>(waiting: &'all [Ticket], period: &str) -> Option<&'all Ticket> {
    waiting.iter().filter(|ticket| ticket.period == period).min_by_key(|ticket| ticket.arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(dir: &LocalDir, period: &str) -> LocalQueue {
        LocalQueue::join(dir, "line", 1, period).unwrap().unwrap()
    }

    fn enter(start: LocalQueue) -> Admission {
        start.try_enter().unwrap().unwrap()
    }

    fn waits(start: LocalQueue) -> LocalQueue {
        start.try_enter().unwrap().unwrap_err()
    }

    #[test]
    fn as_many_starts_as_slots_and_one_more_are_candidates_in_the_order_of_arrival() {
        let folder = tempfile::tempdir().unwrap();
        let dir = LocalDir::At(folder.path().to_owned());
        let (first, _second) = (enter(join(&dir, "")), enter(join(&dir, "")));
        let third = waits(join(&dir, ""));
        let fourth = waits(join(&dir, ""));
        enter(LocalQueue::join(&dir, "other", 1, "").unwrap().unwrap());
        drop(first);
        let fourth = waits(fourth);
        let third = enter(third);
        let fourth = waits(fourth);
        drop(third);
        let fourth = enter(fourth);
        // A start that has ended is not waited for: its file has no lock.
        fs::write(folder.path().join(format!("queue-{:016x}-wait-{:020}-x", hash("line"), 1)), "").unwrap();
        drop(fourth);
        enter(join(&dir, ""));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the file of the second candidate");
        assert!(LocalQueue::join(&LocalDir::None, "line", 1, "").unwrap().is_none());
    }

    #[test]
    fn one_period_at_a_time_is_candidate_and_the_oldest_that_waits_follows() {
        let folder = tempfile::tempdir().unwrap();
        let dir = LocalDir::At(folder.path().to_owned());
        let leader = enter(join(&dir, "03:02"));
        let mut waiting = ["2026-11-24T03:06", "2026-11-24T03:03", "2026-11-24T03:05"]
            .map(|period| Some(waits(join(&dir, period))));
        // A standby for the period of the leader passes them.
        let standby = enter(join(&dir, "03:02"));
        drop(leader);
        waiting = waiting.map(|start| start.map(waits));
        drop(standby);
        for next in [1, 2, 0] {
            let first = waiting[next].take().unwrap();
            waiting = waiting.map(|start| start.map(waits));
            drop(enter(first));
        }
    }
}
