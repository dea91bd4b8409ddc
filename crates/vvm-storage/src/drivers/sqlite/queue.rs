//! [`Queue`]: the thread `vvm-sqlite`, which owns the connection. [`Writer`] runs on it and commits the queued writes
//! as one transaction. Answering a job consumes it, so that every job is answered once.

use super::{
    DriverError,
    config::Location,
    connection::{Database, wait_for_lock},
    obstacle::Obstacle,
    rows::Rows,
};
use crate::{
    drivers::{
        database_thread::DatabaseThread,
        errors::{HandleClosed, ThreadEnded},
    },
    opening::OpenError,
    step::StepOutcome,
};
use ielections::{ReadError, WriteError};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use vvm_clock::{Instant, SystemClock};

/// How many calls may wait for the thread (I11). Further ones wait for room; a burst of a thousand slots fits.
const ROOM: usize = 1024;

#[derive(Debug)]
pub(super) struct Queue {
    room: Arc<Semaphore>,
    jobs: Mutex<Option<mpsc::Sender<QueuedCall>>>,
    thread: DatabaseThread,
}

impl Queue {
    /// Starts the thread, which opens and closes the database. Also returns the database's location. Dropped, it joins
    /// the thread, or leaves behind one that hangs. So waiting for a locked database ends when no caller is left (I10).
    pub(super) async fn start(
        open: impl Fn() -> Result<Database, Obstacle> + Send + 'static,
    ) -> Result<(Self, Location), OpenError> {
        let (sender, jobs) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let thread = DatabaseThread::start("vvm-sqlite", move || {
            match wait_for_lock(open, &|| opened.is_closed()) {
                Err(error) => drop(opened.send(Err(error))),
                Ok(database) => {
                    // Otherwise opening was cancelled, and no handle would close the database.
                    if opened.send(Ok(database.location().clone())).is_ok() {
                        Writer { database, jobs }.run();
                    }
                }
            }
        })?;
        let queue = Self { room: Arc::new(Semaphore::new(ROOM)), jobs: Mutex::new(Some(sender)), thread };
        let panicked = |_| OpenError::refused("the thread that opened the database panicked");
        let location = outcome.await.map_err(panicked)??;
        Ok((queue, location))
    }

    /// Fails with `Fatal` if the handle is closed.
    /// Dropped before its turn, it is skipped; after that the write is applied, and the answer lost.
    pub(super) async fn write(
        &self,
        work: impl Fn(&Rows<'_>) -> Result<StepOutcome, DriverError> + Send + 'static,
    ) -> Result<StepOutcome, WriteError> {
        let job = |answer, room| QueuedCall::Write(Write { work: Box::new(work), answer, room });
        self.call(job).await?.unwrap_or_else(|| Err(WriteError::Unknown(ThreadEnded.into())))
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let job = |answer, room| QueuedCall::Read(Box::new(PendingRead { work, answer, room }));
        self.call(job).await?.unwrap_or_else(|| Err(ReadError::Unavailable(ThreadEnded.into())))
    }

    /// Queues the job that `job` makes of a channel for the answer, and waits for that. `None` if the thread ended
    /// before. Dropped, the job is skipped if the thread has not begun with it; else it is done, and its answer lost.
    async fn call<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<T>, QueuePermit) -> QueuedCall,
    ) -> Result<Option<T>, HandleClosed> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| HandleClosed)?;
        let (answer, answered) = oneshot::channel();
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.as_ref().and_then(|jobs| jobs.send(job(answer, room)).ok()).ok_or(HandleClosed)?;
        }
        Ok(answered.await.ok())
    }

    /// Refuses further calls. Returns when all earlier ones are answered and the thread is joined.
    /// May be dropped. Closing goes on; dropping the queue joins the thread.
    pub(super) async fn close(&self) {
        self.hang_up();
        self.thread.ended().await;
    }

    fn hang_up(&self) {
        self.room.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Queue {
    /// Dropping the thread then joins it.
    fn drop(&mut self) {
        self.hang_up();
    }
}

type QueuePermit = OwnedSemaphorePermit;

enum QueuedCall {
    Read(Box<dyn Read>),
    Write(Write),
}

trait Read: Send {
    fn is_abandoned(&self) -> bool;

    /// Reads and answers. If the database is locked, returns the read, to be tried again.
    fn attempt(self: Box<Self>, rows: &Rows<'_>) -> Result<(), Box<dyn Read>>;

    fn fail(self: Box<Self>, error: DriverError);
}

struct PendingRead<T, W> {
    work: W,
    answer: oneshot::Sender<Result<T, ReadError>>,
    room: QueuePermit,
}

impl<T, W> Read for PendingRead<T, W>
where
    T: Send + 'static,
    W: Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
{
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn attempt(self: Box<Self>, rows: &Rows<'_>) -> Result<(), Box<dyn Read>> {
        match (self.work)(rows) {
            Err(DriverError::Busy) => return Err(self),
            outcome => self.send(outcome.map_err(DriverError::into_read_error)),
        }
        Ok(())
    }

    fn fail(self: Box<Self>, error: DriverError) {
        self.send(Err(error.into_read_error()));
    }
}

impl<T, W> PendingRead<T, W> {
    fn send(self, outcome: Result<T, ReadError>) {
        let _gone = self.answer.send(outcome);
        drop(self.room);
    }
}

type Statements = dyn Fn(&Rows<'_>) -> Result<StepOutcome, DriverError> + Send;

struct Write {
    work: Box<Statements>,
    answer: oneshot::Sender<Result<StepOutcome, WriteError>>,
    room: QueuePermit,
}

impl Write {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn send(self, outcome: Result<StepOutcome, WriteError>) {
        let _gone = self.answer.send(outcome);
        drop(self.room);
    }
}

/// How long a call waits for a lock of another process. Short, because a leader needs the answer in time to try again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval at which a lock is tried. SQLite offers no way to wait for one.
const POLL: Duration = Duration::from_millis(1);

struct Writer {
    database: Database,
    jobs: Receiver<QueuedCall>,
}

impl Writer {
    /// Runs until the queue is closed and every job is answered.
    fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            match job {
                QueuedCall::Read(read) => self.read(read),
                QueuedCall::Write(write) => self.commit_with(write),
            }
        }
    }

    fn read(&self, mut read: Box<dyn Read>) {
        let give_up_at = SystemClock::read().after(LOCK_TIMEOUT);
        while !read.is_abandoned() {
            if let Err(error) = self.database.check_in_place() {
                return read.fail(error);
            }
            match read.attempt(&self.database.rows()) {
                Ok(()) => return,
                Err(again) if SystemClock::read() < give_up_at => read = again,
                Err(again) => return again.fail(DriverError::Busy),
            }
            thread::park_timeout(POLL);
        }
    }

    fn commit_with(&mut self, first: Write) {
        let mut writes = vec![first];
        let mut reads = Vec::new();
        while !writes.is_empty() {
            if let Err(error) = self.begin(&mut writes) {
                writes.into_iter().for_each(|write| write.send(Err(error.clone().before_commit())));
                break;
            }
            // Within the transaction a read would see uncommitted rows, so it waits.
            while let Ok(job) = self.jobs.try_recv() {
                match job {
                    QueuedCall::Read(read) => reads.push(read),
                    QueuedCall::Write(write) => writes.push(write),
                }
            }
            writes = self.apply_and_commit(writes);
        }
        reads.into_iter().for_each(|read| self.read(read));
    }

    /// Takes the write lock. While another process has it, answers reads and collects further writes.
    fn begin(&mut self, writes: &mut Vec<Write>) -> Result<(), DriverError> {
        let give_up_at = SystemClock::read().after(LOCK_TIMEOUT);
        loop {
            match self.database.begin() {
                Ok(()) => return Ok(()),
                Err(DriverError::Busy) if SystemClock::read() < give_up_at => {}
                Err(error) => return Err(error),
            }
            self.gather(writes, SystemClock::read().after(POLL));
            writes.retain(|write| !write.is_abandoned());
            if writes.is_empty() {
                // No caller is left to see this error.
                return Err(DriverError::Busy);
            }
        }
    }

    fn gather(&mut self, writes: &mut Vec<Write>, until: Instant) {
        loop {
            let left = SystemClock::read().until(until);
            if left.is_zero() {
                return;
            }
            match self.jobs.recv_timeout(left) {
                Ok(QueuedCall::Read(read)) => self.read(read),
                Ok(QueuedCall::Write(write)) => writes.push(write),
                Err(RecvTimeoutError::Timeout) => {}
                // The handle is closed, but the queued jobs are still done.
                Err(RecvTimeoutError::Disconnected) => thread::park_timeout(left),
            }
        }
    }

    /// Returns the writes that must be applied again. Some errors (a full disk) roll the whole transaction
    /// back. The write that caused one is answered and not returned, so repeating this ends.
    fn apply_and_commit(&mut self, writes: Vec<Write>) -> Vec<Write> {
        let mut applied: Vec<(Write, StepOutcome)> = Vec::with_capacity(writes.len());
        let mut writes = writes.into_iter().filter(|write| !write.is_abandoned());
        while let Some(write) = writes.next() {
            match (write.work)(&self.database.rows()) {
                Ok(done) => applied.push((write, done)),
                Err(error) => {
                    // It has changed nothing.
                    write.send(Err(error.before_commit()));
                    if !self.database.is_in_transaction() {
                        return applied.into_iter().map(|(write, _)| write).chain(writes).collect();
                    }
                }
            }
        }
        let outcome = self.database.commit();
        for (write, done) in applied {
            write.send(outcome.clone().map(|()| done).map_err(DriverError::at_commit));
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, pin::pin, task::Poll};

    /// Shows I10.
    #[tokio::test]
    async fn dropped_opening_leaves_a_thread_behind_that_hangs() {
        let (release, released) = mpsc::channel::<()>();
        let (ending, ended) = mpsc::channel::<()>();
        {
            let open = move || {
                let _ending = &ending;
                let _ = released.recv();
                Err(Obstacle::Other(OpenError::refused("let go")))
            };
            let mut starting = pin!(Queue::start(open));
            let polled = poll_fn(|context| Poll::Ready(starting.as_mut().poll(context).is_pending()));
            assert!(polled.await);
        }
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty), "it hangs");
        drop(release);
        assert_eq!(ended.recv(), Err(mpsc::RecvError));
    }
}
