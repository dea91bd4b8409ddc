//! The way to the thread that owns the database, and its end.

use super::{
    super::{
        errors::{Closed, DriverError, Unanswered},
        rows::Rows,
    },
    Database, OpenError,
};
use ielections::{ReadError, WriteError};
use std::{
    fmt,
    thread::{self, JoinHandle},
};
use tokio::sync::{mpsc, oneshot};

/// How many calls may wait for the thread. Further ones wait for room: memory stays bounded (I11), and a
/// burst of a thousand slots fits.
const ROOM: usize = 1024;

/// Carries a call out, and says how to answer it once the log is on the disk.
type Call = Box<dyn FnOnce(&mut Rows) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), DriverError>)>;

/// A queue of bounded length and the thread at its end.
pub(in super::super) struct Lane {
    /// `None` once it has hung up.
    queue: Option<mpsc::Sender<Call>>,
    thread: Option<JoinHandle<()>>,
    /// Its other half goes away as the thread's last act.
    ended: oneshot::Receiver<()>,
}

impl Lane {
    /// Starts the thread, on which the database is opened and closed.
    pub(in super::super) async fn start(
        open: impl FnOnce() -> Result<Database, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (queue, calls) = mpsc::channel(ROOM);
        let (opened, outcome) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("vvm-sled".into())
            .spawn(move || {
                // Dropped after all else that this thread has.
                let _ending = ending;
                match open() {
                    Err(error) => drop(opened.send(Err(error))),
                    // Nobody opens any more: nobody would close.
                    Ok(database) => {
                        if opened.send(Ok(())).is_ok() {
                            serve(database, calls);
                        }
                    }
                }
            })
            .map_err(OpenError::Thread)?;
        let lane = Self { queue: Some(queue), thread: Some(thread), ended };
        match outcome.await {
            Ok(opened) => opened.map(|()| lane),
            Err(_) => Err(OpenError::ThreadEnded),
        }
    }

    /// # Cancel safety
    /// Dropped before its turn, it is skipped; after that the write is applied, and nobody told.
    pub(in super::super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, WriteError> {
        match self.call(work, DriverError::while_writing).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(WriteError::Unknown(Unanswered.into())),
            Err(closed) => Err(WriteError::Fatal(closed.into())),
        }
    }

    pub(in super::super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        match self.call(work, DriverError::into_read_error).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(ReadError::Unavailable(Unanswered.into())),
            Err(closed) => Err(ReadError::Fatal(closed.into())),
        }
    }

    /// `None` if the thread ended before it answered.
    async fn call<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, E> + Send + 'static,
        unsynced: impl FnOnce(DriverError) -> E + Send + 'static,
    ) -> Result<Option<Result<T, E>>, Closed> {
        let queue = self.queue.as_ref().ok_or(Closed)?;
        let (answer, answered) = oneshot::channel();
        let call: Call = Box::new(move |rows| {
            let outcome = (!answer.is_closed()).then(|| work(rows));
            Box::new(move |synced| {
                if let Some(outcome) = outcome {
                    // A caller that has gone doesn't read.
                    let _gone = answer.send(outcome.and_then(|done| synced.map(|()| done).map_err(unsynced)));
                }
            })
        });
        // It fails only if the thread panicked, and then the call was not carried out.
        queue.send(call).await.map_err(|_| Closed)?;
        Ok(answered.await.ok())
    }

    /// Returns once all that was asked is answered and the thread joined.
    ///
    /// # Cancel safety
    /// May be dropped: that joins the thread there and then.
    pub(in super::super) async fn end(mut self) {
        self.queue.take();
        // An error is what it waits for: the thread has let go of its half.
        let _ended = (&mut self.ended).await;
    }
}

/// Until everybody has hung up and all that was queued is answered.
fn serve(mut database: Database, mut calls: mpsc::Receiver<Call>) {
    while let Some(first) = calls.blocking_recv() {
        let mut answers = vec![first(&mut database.rows)];
        while let Ok(next) = calls.try_recv() {
            answers.push(next(&mut database.rows));
        }
        // One sync pays for all.
        let synced = database.sync();
        answers.into_iter().for_each(|answer| answer(synced.clone()));
    }
}

impl Drop for Lane {
    /// Joins the thread (I9), which takes as long as what is queued and one sync.
    fn drop(&mut self) {
        self.queue.take();
        if let Some(Err(_panic)) = self.thread.take().map(JoinHandle::join) {
            // The panic has been printed where it happened, and its callers got `Unknown`.
            tracing::error!("the thread that owned the database had panicked");
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = self.queue.as_ref().map(mpsc::Sender::capacity);
        out.debug_struct("Lane").field("room", &room).finish()
    }
}
