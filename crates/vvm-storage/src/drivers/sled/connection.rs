//! The thread that owns an open folder, and the jobs that it carries out for all handles on it.

use super::{
    SEGMENT_BYTES,
    config::{
        CACHE_BYTES, CONFIGURATION, DATA, LOCK_TIMEOUT, POLL, check_format, is_held, of_sled, of_system,
        prepare,
    },
};
use crate::{
    cells::{Cell, CellCondition, CellWrite, Tag},
    drivers::database_thread::DatabaseThread,
    key::Partition,
    opening::OpenError,
    sysvvm::OpenedStorage,
};
use bytes::Bytes;
use ielections::ReadError;
use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
};
use tokio::sync::{Mutex, mpsc, oneshot};
use vvm_clock::SystemClock;

/// How many calls may wait for the thread (I11). Further ones wait for room; a burst of a thousand slots fits.
const ROOM: usize = 1024;

#[derive(Debug)]
pub(super) struct SharedDatabase {
    /// Dropped before the thread, which then ends and is joined.
    pub(super) jobs: mpsc::Sender<Job>,
    pub(super) thread: DatabaseThread,
}

/// One call. A caller that has gone has dropped the receiver.
pub(super) enum Job {
    Read {
        key: Partition,
        answer: oneshot::Sender<Result<Option<Cell>, ReadError>>,
    },
    Write {
        key: Partition,
        value: Bytes,
        expected: CellCondition,
        answer: oneshot::Sender<CellWrite>,
    },
    /// Answered when all earlier jobs are.
    Wait {
        answer: oneshot::Sender<()>,
    },
}

impl Job {
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Read { answer, .. } => answer.is_closed(),
            Self::Write { answer, .. } => answer.is_closed(),
            Self::Wait { answer } => answer.is_closed(),
        }
    }
}

/// Waits for the lock while a caller is left.
pub(super) fn open_folder(folder: PathBuf, is_cancelled: &dyn Fn() -> bool) -> Result<Database, OpenError> {
    let give_up_at = SystemClock::read().after(LOCK_TIMEOUT);
    let configuration = sled::Config::new()
        .path(&folder)
        .segment_size(SEGMENT_BYTES)
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(None);
    let cells = loop {
        match configuration.open() {
            Ok(cells) => break cells,
            Err(_) if is_held(&folder) => {
                if SystemClock::read() >= give_up_at || is_cancelled() {
                    return Err(OpenError::passing(format!(
                        "another process uses {}, and only one at a time can: end it, or let them share a file \
                         (`sqlite:/var/lib/vvm/elections.db`)",
                        folder.display()
                    )));
                }
                thread::park_timeout(POLL);
            }
            Err(cause) => return Err(of_sled(&folder, cause)),
        }
    };
    check_format(&folder, &cells)?;
    let data = File::open(folder.join(DATA)).map_err(|cause| of_system(&folder, &cause))?;
    let database = Database { cells, data, folder };
    let folder = &database.folder;
    // Also what a killed process has written and not synced: a read shows it from now on.
    database.sync().map_err(|cause| of_sled(folder, cause))?;
    for created in [&*folder.join(CONFIGURATION), folder, folder.parent().unwrap_or(folder)] {
        let synced = File::open(created).and_then(|created| created.sync_all());
        synced.map_err(|cause| of_system(created, &cause))?;
    }
    Ok(database)
}

/// The open folders of this process: sled can't open one twice, so handles share it.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<SharedDatabase>>> = Mutex::const_new(BTreeMap::new());

#[derive(Debug)]
pub(super) struct Database {
    pub(super) cells: sled::Db,
    pub(super) data: File,
    pub(super) folder: PathBuf,
}

impl Database {
    /// Writes all changes to the disk. Blocking: `flush_async` can wait for its own threads for ever (sled#1241).
    pub(super) fn sync(&self) -> sled::Result<()> {
        self.cells.flush()?;
        Ok(self.data.sync_all()?)
    }
}

pub(super) async fn open(path: &Path) -> Result<(Arc<SharedDatabase>, OpenedStorage), OpenError> {
    let mut open = OPEN.lock().await;
    let (folder, provenance) = prepare(path)?;
    let opened = OpenedStorage::at(folder.display().to_string(), provenance);
    open.retain(|_, shared| shared.strong_count() > 0);
    if let Some(shared) = open.get(&folder).and_then(Weak::upgrade).filter(|shared| !shared.jobs.is_closed())
    {
        return Ok((shared, opened));
    }
    let (jobs, received) = mpsc::channel::<Job>(ROOM);
    let (outcome, is_open) = oneshot::channel();
    let thread = DatabaseThread::start("vvm-sled", {
        let folder = folder.clone();
        move || match open_folder(folder, &|| outcome.is_closed()) {
            Err(error) => drop(outcome.send(Err(error))),
            // Otherwise opening was cancelled.
            Ok(database) if outcome.send(Ok(())).is_ok() => database.run(received),
            Ok(_) => {}
        }
    })?;
    let shared = Arc::new(SharedDatabase { jobs, thread });
    is_open.await.map_err(|_| OpenError::refused("the thread that opened the database panicked"))??;
    open.insert(folder, Arc::downgrade(&shared));
    Ok((shared, opened))
}

impl Database {
    fn run(self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let batch = std::iter::once(first).chain(std::iter::from_fn(|| jobs.try_recv().ok()));
            let mut answers = Vec::new();
            if let Err(cause) = self.carry_out(batch.take(ROOM), &mut answers) {
                // Before a caller learns that it has no answer: no later call is queued.
                jobs.close();
                tracing::error!(
                    folder = %self.folder.display(), %cause,
                    "a write to the database failed, and the folder is closed: look at its disk, and start the \
                     program again"
                );
                return;
            }
            answers.into_iter().for_each(|answer| answer());
        }
    }

    /// Carries out the jobs, and makes the answers that may be given when their writes are on the disk. If that fails none
    /// may be given, because sled shows what may not be there (I7).
    fn carry_out(
        &self,
        batch: impl Iterator<Item = Job>,
        answers: &mut Vec<Box<dyn FnOnce()>>,
    ) -> sled::Result<()> {
        let mut is_changed = false;
        for job in batch.filter(|job| !job.is_abandoned()) {
            match job {
                Job::Read { key, answer } => {
                    let read = self.read(&key);
                    answers.push(Box::new(move || _ = answer.send(read)));
                }
                Job::Write { key, value, expected, answer } => {
                    let written = self.write(&key, &value, &expected);
                    is_changed |= !matches!(written, Ok(CellWrite::Refused));
                    let (answered, failed) =
                        written.map_or_else(|error| (None, Err(error)), |done| (Some(done), Ok(())));
                    answers.push(Box::new(move || _ = answered.map(|done| answer.send(done))));
                    failed?;
                }
                Job::Wait { answer } => answers.push(Box::new(move || _ = answer.send(()))),
            }
        }
        if is_changed {
            self.sync()?;
        }
        Ok(())
    }

    fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let value = self.cells.get(key.as_bytes()).map_err(|error| match error {
            sled::Error::Io(_) => ReadError::Unavailable(error.into()),
            _ => ReadError::Fatal(error.into()),
        })?;
        Ok(value.map(|value| Cell { value: Bytes::copy_from_slice(&value), tag: Tag::new(&*value) }))
    }

    fn write(&self, key: &Partition, value: &Bytes, expected: &CellCondition) -> sled::Result<CellWrite> {
        let expected = match expected {
            CellCondition::Absent => None,
            CellCondition::Tag(tag) => Some(tag.as_bytes()),
        };
        Ok(match self.cells.compare_and_swap(key.as_bytes(), expected, Some(&value[..]))? {
            Ok(()) => CellWrite::Written(Some(Tag::new(&value[..]))),
            Err(_stands) => CellWrite::Refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::config::DATA, *};
    use std::fs;
    use tempfile::TempDir;

    /// A copy of the files shows what a killed process leaves.
    #[test]
    fn write_is_on_the_disk_before_its_answer_although_the_next_one_is_refused() {
        let (folder, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let database = open_folder(folder.path().into(), &|| false).unwrap();
        let key = Partition::from_bytes(*b"key");
        let (jobs, _answered): (Vec<_>, Vec<_>) = [b"one", b"two"]
            .map(|value| {
                let (answer, answered) = oneshot::channel();
                let (key, value) = (key.clone(), Bytes::from_static(value));
                (Job::Write { key, value, expected: CellCondition::Absent, answer }, answered)
            })
            .into_iter()
            .unzip();
        database.carry_out(jobs.into_iter(), &mut Vec::new()).unwrap();
        for file in ["conf", DATA] {
            fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
        }
        let left = open_folder(copy.path().into(), &|| false).unwrap();
        assert_eq!(left.read(&key).unwrap().unwrap().value, &b"one"[..]);
    }
}
