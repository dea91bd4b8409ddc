//! [`Queue`]: reads and writes for the thread `vvm-sqlite`, and [`Writer`], which runs on it and commits the
//! queued writes as one transaction.
//!
//! A write is applied first and answered after `COMMIT`. Each state of a job is a type, so that every write is
//! answered once, and only after it was applied.

use super::{
    database_thread::{DatabaseThread, Room},
    errors::DriverError,
    open::{Database, Location, OpenError, wait_for_lock},
    rows::Rows,
};
use crate::drivers::errors::Unanswered;
use ielections::{ReadError, WriteError};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::{Instant, SystemClock};

/// The thread that owns the connection, and the queue of its jobs.
#[derive(Debug)]
pub(super) struct Queue(DatabaseThread<Job>);

impl Queue {
    /// Starts the thread, which opens and closes the database. Also returns the database's location.
    pub(super) async fn start(
        open: impl Fn() -> Result<Database, OpenError> + Send + 'static,
    ) -> Result<(Self, Location), OpenError> {
        let open = move |is_abandoned: &dyn Fn() -> bool| {
            let database = wait_for_lock(open, is_abandoned)?;
            let location = database.location().clone();
            Ok((database, location))
        };
        let (thread, location) =
            DatabaseThread::start(open, |database, jobs| Writer::new(database, jobs).run()).await?;
        Ok((Self(thread), location))
    }

    /// Carries a write out. Fails with `Fatal` if the handle is closed.
    ///
    /// # Cancel safety
    /// Dropped before its turn, it is skipped; after that the write is applied, and the answer lost.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let job = |answer, room| Job::Write(Box::new(PendingWrite { work, answer, room }));
        self.0.call(job).await?.unwrap_or_else(|| Err(WriteError::Unknown(Unanswered.into())))
    }

    /// Carries a read out. Fails with `Fatal` if the handle is closed.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let job = |answer, room| Job::Read(Box::new(PendingRead { work, answer, room }));
        self.0.call(job).await?.unwrap_or_else(|| Err(ReadError::Unavailable(Unanswered.into())))
    }

    /// Refuses further calls. Returns when all earlier ones are answered and the thread is joined.
    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}

/// One call. It keeps its place in the queue until it is answered.
enum Job {
    Read(Box<dyn Read>),
    Write(Box<dyn Write>),
}

/// A read that is not answered yet.
trait Read: Send {
    /// Whether the caller has gone.
    fn is_abandoned(&self) -> bool;

    /// Reads and answers. If the database is locked, returns the read, to be tried again.
    fn attempt(self: Box<Self>, rows: &Rows<'_>) -> Result<(), Box<dyn Read>>;

    fn fail(self: Box<Self>, error: DriverError);
}

/// A write that is not applied yet.
trait Write: Send {
    /// Whether the caller has gone.
    fn is_abandoned(&self) -> bool;

    /// Applies it within the transaction. `None` if it failed: it has changed nothing and is answered.
    fn apply(self: Box<Self>, rows: &Rows<'_>) -> Option<Box<dyn Applied>>;

    /// Answers a write that was not applied.
    fn fail(self: Box<Self>, error: DriverError);
}

/// A write that was applied, before its transaction has ended.
trait Applied: Send {
    fn answer(self: Box<Self>, committed: Result<(), WriteError>);

    /// Returns the write to be applied again, because its transaction was rolled back.
    fn again(self: Box<Self>) -> Box<dyn Write>;
}

struct PendingRead<T, W> {
    work: W,
    answer: oneshot::Sender<Result<T, ReadError>>,
    room: Room,
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

struct PendingWrite<T, W> {
    work: W,
    answer: oneshot::Sender<Result<T, WriteError>>,
    room: Room,
}

impl<T, W> Write for PendingWrite<T, W>
where
    T: Send + 'static,
    W: Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
{
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn apply(self: Box<Self>, rows: &Rows<'_>) -> Option<Box<dyn Applied>> {
        match (self.work)(rows) {
            Ok(outcome) => Some(Box::new(AppliedWrite { outcome, pending: self })),
            Err(error) => {
                self.send(Err(error.before_commit()));
                None
            }
        }
    }

    fn fail(self: Box<Self>, error: DriverError) {
        self.send(Err(error.before_commit()));
    }
}

impl<T, W> PendingWrite<T, W> {
    fn send(self, outcome: Result<T, WriteError>) {
        let _gone = self.answer.send(outcome);
        drop(self.room);
    }
}

struct AppliedWrite<T, W> {
    outcome: T,
    pending: Box<PendingWrite<T, W>>,
}

impl<T, W> Applied for AppliedWrite<T, W>
where
    T: Send + 'static,
    W: Fn(&Rows<'_>) -> Result<T, DriverError> + Send + 'static,
{
    fn answer(self: Box<Self>, committed: Result<(), WriteError>) {
        let Self { outcome, pending } = *self;
        pending.send(committed.map(|()| outcome));
    }

    fn again(self: Box<Self>) -> Box<dyn Write> {
        self.pending
    }
}

/// How long a call waits for a lock of another process. Short, because a leader needs the answer in time to
/// try again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval at which a lock is tried. SQLite offers no way to wait for one.
const POLL: Duration = Duration::from_millis(1);

struct Writer {
    database: Database,
    jobs: Receiver<Job>,
}

impl Writer {
    fn new(database: Database, jobs: Receiver<Job>) -> Self {
        Self { database, jobs }
    }

    /// Runs until the queue is closed and every job is answered.
    fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            match job {
                Job::Read(read) => self.read(read),
                Job::Write(write) => self.commit_with(write),
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

    /// Commits this write together with those that arrive before the commit.
    fn commit_with(&mut self, first: Box<dyn Write>) {
        let mut writes = vec![first];
        let mut reads = Vec::new();
        while !writes.is_empty() {
            if let Err(error) = self.begin(&mut writes) {
                writes.into_iter().for_each(|write| write.fail(error.clone()));
                break;
            }
            // Within the transaction a read would see uncommitted rows, so it waits.
            while let Ok(job) = self.jobs.try_recv() {
                match job {
                    Job::Read(read) => reads.push(read),
                    Job::Write(write) => writes.push(write),
                }
            }
            writes = self.apply_and_commit(writes);
        }
        reads.into_iter().for_each(|read| self.read(read));
    }

    /// Takes the write lock. While another process has it, answers reads and collects further writes.
    fn begin(&mut self, writes: &mut Vec<Box<dyn Write>>) -> Result<(), DriverError> {
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

    fn gather(&mut self, writes: &mut Vec<Box<dyn Write>>, until: Instant) {
        loop {
            let left = SystemClock::read().until(until);
            if left.is_zero() {
                return;
            }
            match self.jobs.recv_timeout(left) {
                Ok(Job::Read(read)) => self.read(read),
                Ok(Job::Write(write)) => writes.push(write),
                Err(RecvTimeoutError::Timeout) => {}
                // The handle is closed, but the queued jobs are still done.
                Err(RecvTimeoutError::Disconnected) => thread::park_timeout(left),
            }
        }
    }

    /// Returns the writes that must be applied again. Some errors (a full disk) roll the whole transaction
    /// back. The write that caused one is answered and not returned, so repeating this ends.
    fn apply_and_commit(&mut self, writes: Vec<Box<dyn Write>>) -> Vec<Box<dyn Write>> {
        let mut applied: Vec<Box<dyn Applied>> = Vec::with_capacity(writes.len());
        let mut writes = writes.into_iter().filter(|write| !write.is_abandoned());
        while let Some(write) = writes.next() {
            match write.apply(&self.database.rows()) {
                Some(write) => applied.push(write),
                None if self.database.is_in_transaction() => {}
                None => return applied.into_iter().map(Applied::again).chain(writes).collect(),
            }
        }
        let outcome = self.database.commit();
        for write in applied {
            write.answer(outcome.clone().map_err(DriverError::at_commit));
        }
        Vec::new()
    }
}
