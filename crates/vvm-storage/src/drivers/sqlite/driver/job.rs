//! Jobs for the thread: a call's work, and the channel for its answer.
//!
//! A write is applied first and answered after `COMMIT`. Each state is a type, so that every write is
//! answered once, and only after it was applied.

use super::super::{errors::DriverError, rows::Rows};
use crate::drivers::database_thread::Room;
use ielections::{ReadError, WriteError};
use tokio::sync::oneshot;

/// One call. It keeps its place in the queue until it is answered.
pub(super) enum Job {
    Read(Box<dyn Read>),
    Write(Box<dyn Write>),
}

/// A read that is not answered yet.
pub(super) trait Read: Send {
    /// Whether the caller has gone.
    fn is_abandoned(&self) -> bool;

    /// Reads and answers. If the database is locked, returns the read, to be tried again.
    fn attempt(self: Box<Self>, rows: &Rows<'_>) -> Result<(), Box<dyn Read>>;

    fn fail(self: Box<Self>, error: DriverError);
}

/// A write that is not applied yet.
pub(super) trait Write: Send {
    /// Whether the caller has gone.
    fn is_abandoned(&self) -> bool;

    /// Applies it within the transaction. `None` if it failed: it has changed nothing and is answered.
    fn apply(self: Box<Self>, rows: &Rows<'_>) -> Option<Box<dyn Applied>>;

    /// Answers a write that was not applied.
    fn fail(self: Box<Self>, error: DriverError);
}

/// A write that was applied, before its transaction has ended.
pub(super) trait Applied: Send {
    fn answer(self: Box<Self>, committed: Result<(), WriteError>);

    /// Returns the write to be applied again, because its transaction was rolled back.
    fn again(self: Box<Self>) -> Box<dyn Write>;
}

pub(super) struct PendingRead<T, W> {
    pub(super) work: W,
    pub(super) answer: oneshot::Sender<Result<T, ReadError>>,
    pub(super) room: Room,
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

pub(super) struct PendingWrite<T, W> {
    pub(super) work: W,
    pub(super) answer: oneshot::Sender<Result<T, WriteError>>,
    pub(super) room: Room,
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
