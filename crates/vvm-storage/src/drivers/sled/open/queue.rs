//! [`Queue`]: calls for the thread `vvm-sled`.

use super::{
    super::{errors::DriverError, rows::Rows},
    Database, OpenError,
};
use crate::drivers::{
    closed::{Closed, Unanswered},
    database_thread::{DatabaseThread, StartError},
};
use ielections::{ReadError, WriteError};
use std::sync::mpsc;

/// Carries a call out, and returns how to answer it once the log is on the disk.
type Call = Box<dyn FnOnce(&mut Rows) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), DriverError>)>;

/// The thread that owns the database, and the queue of its calls.
#[derive(Debug)]
pub(in super::super) struct Queue(DatabaseThread<Call>);

impl Queue {
    /// Starts the thread, which opens and closes the database.
    pub(in super::super) async fn start(
        open: impl FnOnce() -> Result<Database, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        match DatabaseThread::start("vvm-sled", |_| open().map(|database| (database, ())), serve).await {
            Ok((thread, ())) => Ok(Self(thread)),
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
        work: impl FnOnce(&mut Rows) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let answer = self.call(work, DriverError::while_writing).await?;
        answer.unwrap_or_else(|| Err(WriteError::Unknown(Unanswered.into())))
    }

    /// Carries a read out. Fails with `Fatal` if the handle is closed.
    pub(in super::super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let work = |rows: &mut Rows| work(rows).map_err(DriverError::into_read_error);
        let answer = self.call(work, DriverError::into_read_error).await?;
        answer.unwrap_or_else(|| Err(ReadError::Unavailable(Unanswered.into())))
    }

    /// `None` if the thread ended before it answered.
    async fn call<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, E> + Send + 'static,
        unsynced: impl FnOnce(DriverError) -> E + Send + 'static,
    ) -> Result<Option<Result<T, E>>, Closed> {
        let call = |answer: tokio::sync::oneshot::Sender<_>, room| -> Call {
            Box::new(move |rows| {
                let outcome = (!answer.is_closed()).then(|| work(rows));
                drop(room);
                Box::new(move |synced| {
                    if let Some(outcome) = outcome {
                        // The caller may be gone.
                        let _gone =
                            answer.send(outcome.and_then(|done| synced.map(|()| done).map_err(unsynced)));
                    }
                })
            })
        };
        self.0.call(call).await
    }

    /// Returns when all calls are answered and the thread is joined.
    ///
    /// # Cancel safety
    /// May be dropped: that joins the thread at once.
    pub(in super::super) async fn close(self) {
        self.0.close().await;
    }
}

/// Serves until the queue is closed and empty. All calls that wait share one sync.
fn serve(mut database: Database, calls: mpsc::Receiver<Call>) {
    while let Ok(first) = calls.recv() {
        let mut answers = vec![first(&mut database.rows)];
        while let Ok(next) = calls.try_recv() {
            answers.push(next(&mut database.rows));
        }
        let synced = database.sync();
        answers.into_iter().for_each(|answer| answer(synced.clone()));
    }
}
