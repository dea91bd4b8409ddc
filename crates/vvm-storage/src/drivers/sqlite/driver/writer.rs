//! [`Writer`]: the thread that owns the connection. It commits the queued writes as one transaction.

use super::{
    super::{errors::DriverError, open::Database},
    job::{Applied, Job, Read, Write},
};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// How long a call waits for a lock of another process. Short, because a leader needs the answer in time to
/// try again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval at which a lock is tried. SQLite offers no way to wait for one.
const POLL: Duration = Duration::from_millis(1);

pub(super) struct Writer {
    database: Database,
    jobs: Receiver<Job>,
}

impl Writer {
    pub(super) fn new(database: Database, jobs: Receiver<Job>) -> Self {
        Self { database, jobs }
    }

    /// Runs until the queue is closed and every job is answered.
    pub(super) fn run(mut self) {
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
