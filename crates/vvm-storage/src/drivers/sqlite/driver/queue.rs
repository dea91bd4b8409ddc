//! [`Queue`]: reads and writes for the thread `vvm-sqlite`.

use super::{
    super::{
        errors::DriverError,
        open::{Database, Location, OpenError, wait_for_lock},
        rows::Rows,
    },
    job::{Job, PendingRead, PendingWrite},
    writer::Writer,
};
use crate::drivers::{
    closed::Unanswered,
    database_thread::{DatabaseThread, StartError},
};
use ielections::{ReadError, WriteError};

/// The thread that owns the connection, and the queue of its jobs.
#[derive(Debug)]
pub(in super::super) struct Queue(DatabaseThread<Job>);

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
        let started =
            DatabaseThread::start("vvm-sqlite", open, |database, jobs| Writer::new(database, jobs).run());
        match started.await {
            Ok((thread, location)) => Ok((Self(thread), location)),
            Err(StartError::Thread(cause)) => Err(OpenError::Thread(cause)),
            Err(StartError::Ended) => Err(OpenError::ThreadEnded),
            Err(StartError::Open(error)) => Err(error),
        }
    }

    /// Carries a write out. Fails with `Fatal` if the handle is closed.
    ///
    /// # Cancel safety
    /// Dropped before its turn, it is skipped; after that the write is applied, and the answer lost.
    pub(in super::super) async fn write<T: Send + 'static>(
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
