//! What callers ask of the thread: a piece of work, and where its answer goes.
//!
//! A write is first applied and answered only later, after `COMMIT`; the two states are two types, so that
//! nothing is answered that was not applied, and nothing twice.

use super::super::{errors::DriverError, rows::Rows};
use ielections::{ReadError, WriteError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// One call. It holds its place in the queue until it is answered.
pub(super) enum Job {
    Read(Box<dyn Read>),
    Write(Box<dyn Write>),
}

/// A read whose turn has come or will.
pub(super) trait Read: Send {
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;

    /// Reads and answers, unless the database is locked: then the read can be tried again.
    fn attempt(self: Box<Self>, rows: &Rows<'_>) -> Result<(), Box<dyn Read>>;

    fn fail(self: Box<Self>, error: DriverError);
}

/// A write whose turn has come or will.
pub(super) trait Write: Send {
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;

    /// Carries it out within the transaction. `None` if it failed: then it has changed nothing and has been
    /// answered.
    fn apply(self: Box<Self>, rows: &Rows<'_>) -> Option<Box<dyn Applied>>;

    /// Answers a write that was not carried out.
    fn fail(self: Box<Self>, error: DriverError);
}

/// A write that was carried out and awaits the end of its transaction.
pub(super) trait Applied: Send {
    fn answer(self: Box<Self>, committed: Result<(), WriteError>);

    /// Forgets that it was carried out: its transaction was rolled back.
    fn again(self: Box<Self>) -> Box<dyn Write>;
}

pub(super) struct PendingRead<T, W> {
    pub(super) work: W,
    pub(super) answer: oneshot::Sender<Result<T, ReadError>>,
    pub(super) room: OwnedSemaphorePermit,
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
        // A caller that has gone doesn't read.
        let _gone = self.answer.send(outcome);
        drop(self.room);
    }
}

pub(super) struct PendingWrite<T, W> {
    pub(super) work: W,
    pub(super) answer: oneshot::Sender<Result<T, WriteError>>,
    pub(super) room: OwnedSemaphorePermit,
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
