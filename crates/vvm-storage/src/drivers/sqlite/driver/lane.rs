//! The way to the thread that owns the connection, and its end.

use super::{
    super::{
        errors::{Closed, DriverError, Unanswered},
        open::{Database, Location, OpenError},
        rows::Rows,
    },
    job::{Job, PendingRead, PendingWrite},
    writer::Writer,
};
use ielections::{ReadError, WriteError};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};
use tokio::sync::{Semaphore, oneshot, watch};

/// How many calls may wait for the thread. Further ones wait for room: memory stays bounded (I11), and a
/// burst of a thousand slots fits.
const ROOM: usize = 1024;

/// A queue of bounded length and the thread at its end.
pub(in super::super) struct Lane {
    room: Arc<Semaphore>,
    /// `None` once closed.
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    /// Its other half goes away as the thread's last act.
    ended: watch::Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Lane {
    /// Starts the thread, on which the database is opened and closed. Returns where the database lies, too.
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Database, OpenError> + Send + 'static,
    ) -> Result<(Self, Location), OpenError> {
        let (queue, jobs) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let (ending, ended) = watch::channel(());
        let thread = thread::Builder::new()
            .name("vvm-sqlite".into())
            .spawn(move || {
                // Dropped after all else that this thread has.
                let _ending = ending;
                match open() {
                    Err(error) => drop(opened.send(Err(error))),
                    // Nobody opens any more: nobody would close.
                    Ok(database) => {
                        if opened.send(Ok(database.location().clone())).is_ok() {
                            Writer::new(database, jobs).run();
                        }
                    }
                }
            })
            .map_err(OpenError::Thread)?;
        let lane = Self {
            room: Arc::new(Semaphore::new(ROOM)),
            queue: Mutex::new(Some(queue)),
            ended,
            thread: Mutex::new(Some(thread)),
        };
        match outcome.await {
            Ok(opened) => opened.map(|location| (lane, location)),
            Err(_) => Err(OpenError::ThreadEnded),
        }
    }

    /// # Cancel safety
    /// Dropped before its turn, it is skipped; after that the write is applied, and nobody told.
    pub(in super::super) async fn write<T: Send + 'static>(
        &self,
        work: impl Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
            return Err(WriteError::Fatal(Closed.into()));
        };
        let (answer, answered) = oneshot::channel();
        self.send(Job::Write(Box::new(PendingWrite { work, answer, room })))
            .map_err(|closed| WriteError::Fatal(closed.into()))?;
        answered.await.unwrap_or_else(|_| Err(WriteError::Unknown(Unanswered.into())))
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
            return Err(ReadError::Fatal(Closed.into()));
        };
        let (answer, answered) = oneshot::channel();
        self.send(Job::Read(Box::new(PendingRead { work, answer, room })))
            .map_err(|closed| ReadError::Fatal(closed.into()))?;
        answered.await.unwrap_or_else(|_| Err(ReadError::Unavailable(Unanswered.into())))
    }

    /// Refuses what comes, and returns once all that came before is answered and the thread joined.
    ///
    /// # Cancel safety
    /// May be dropped; closing goes on, and dropping the lane joins the thread.
    pub(super) async fn close(&self) {
        self.hang_up();
        // An error is what it waits for: the thread has let go of its half.
        while self.ended.clone().changed().await.is_ok() {}
        self.join();
    }

    fn send(&self, job: Job) -> Result<(), Closed> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().and_then(|queue| queue.send(job).ok()).ok_or(Closed)
    }

    fn hang_up(&self) {
        self.room.close();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_panic)) = thread.map(JoinHandle::join) {
            // The panic has been printed where it happened, and its callers got `Unknown`.
            tracing::error!("the thread that owned the database had panicked");
        }
    }
}

impl Drop for Lane {
    /// Joins the thread (I9), which takes as long as what is queued: without [`close`](Lane::close), up to a
    /// second for a database that is locked.
    fn drop(&mut self) {
        self.hang_up();
        self.join();
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = ROOM - self.room.available_permits();
        out.debug_struct("Lane").field("waiting", &waiting).field("closed", &self.room.is_closed()).finish()
    }
}
