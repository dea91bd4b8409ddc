//! [`DatabaseThread`]: the thread `vvm-sqlite`, which owns the connection, and the queue of jobs for it.

use super::open::{Database, Location, OpenError};
use crate::drivers::errors::Closed;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use vvm_clock::SystemClock;

/// How many calls may wait for the thread. Further ones wait for room: memory stays bounded (I11), and a
/// burst of a thousand slots fits.
const ROOM: usize = 1024;

/// How long a drop waits for the thread, which waits for locks for a second at most. It takes longer only if it hangs in the
/// kernel, as on a failing disk.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before a drop looks at the thread again.
const LOOK: Duration = Duration::from_millis(1);

/// A job's place in the queue. Dropping it makes room for another call.
pub(super) type Room = OwnedSemaphorePermit;

/// The thread that owns the database, and the bounded queue of its jobs.
pub(super) struct DatabaseThread<Job> {
    room: Arc<Semaphore>,
    /// `None` once closed.
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    /// Its sender is dropped as the thread's last act.
    ended: watch::Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<Job: Send + 'static> DatabaseThread<Job> {
    /// Starts the thread. On it `open` opens the database, and `serve` takes jobs until the queue is closed.
    /// Also returns the database's location.
    ///
    /// # Cancel safety
    /// Dropped, it joins the thread, or leaves it behind after [`DROP_TIMEOUT`]. So an `open` that waits ends when its argument returns true: then no
    /// caller is left (I10).
    pub(super) async fn start(
        open: impl FnOnce(&dyn Fn() -> bool) -> Result<(Database, Location), OpenError> + Send + 'static,
        serve: impl FnOnce(Database, mpsc::Receiver<Job>) + Send + 'static,
    ) -> Result<(Self, Location), OpenError> {
        let (queue, jobs) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let (ending, ended) = watch::channel(());
        let run = move || {
            // Dropped last, after all that this thread owns.
            let _ending = ending;
            match open(&|| opened.is_closed()) {
                Err(error) => drop(opened.send(Err(error))),
                Ok((database, location)) => {
                    // Otherwise opening was cancelled, and no handle would close the database.
                    if opened.send(Ok(location)).is_ok() {
                        serve(database, jobs);
                    }
                }
            }
        };
        let thread =
            thread::Builder::new().name("vvm-sqlite".into()).spawn(run).map_err(OpenError::Thread)?;
        let thread = Self {
            room: Arc::new(Semaphore::new(ROOM)),
            queue: Mutex::new(Some(queue)),
            ended,
            thread: Mutex::new(Some(thread)),
        };
        let location = outcome.await.map_err(|_| OpenError::ThreadEnded)??;
        Ok((thread, location))
    }

    /// Queues the job that `job` makes of a channel for the answer, and waits for the answer. `None` if the
    /// thread ended before it answered.
    ///
    /// # Cancel safety
    /// Dropped, the job is skipped if the thread has not begun with it; else it is done, and its answer lost.
    pub(super) async fn call<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<T>, Room) -> Job,
    ) -> Result<Option<T>, Closed> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| Closed)?;
        let (answer, answered) = oneshot::channel();
        {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.as_ref().and_then(|queue| queue.send(job(answer, room)).ok()).ok_or(Closed)?;
        }
        Ok(answered.await.ok())
    }

    /// Refuses further calls. Returns when all earlier ones are answered and the thread is joined.
    ///
    /// # Cancel safety
    /// May be dropped. Closing goes on; dropping the `DatabaseThread` joins the thread.
    pub(super) async fn close(&self) {
        self.hang_up();
        // Fails when the thread has dropped the sender, and only then.
        while self.ended.clone().changed().await.is_ok() {}
        self.join();
    }
}

impl<Job> DatabaseThread<Job> {
    fn hang_up(&self) {
        self.room.close();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_panic)) = thread.map(JoinHandle::join) {
            // The panic was printed where it happened, and its callers got `Unknown`.
            tracing::error!("the thread that owned the database had panicked");
        }
    }
}

impl<Job> Drop for DatabaseThread<Job> {
    /// Joins the thread (I9). That takes as long as the jobs in the queue: without
    /// [`close`](DatabaseThread::close), up to a second if the database is locked. A thread that hangs is left behind, and
    /// ends with its system call or the process: this one has signals and renewals to handle (I10).
    fn drop(&mut self) {
        self.hang_up();
        let give_up_at = SystemClock::read().after(DROP_TIMEOUT);
        let has_ended = |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        while !has_ended(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            if SystemClock::read() >= give_up_at {
                tracing::error!(
                    "the thread that owns the database hangs, and is left behind: check its disk"
                );
                return;
            }
            SystemClock::block_for(LOOK);
        }
        self.join();
    }
}

impl<Job> fmt::Debug for DatabaseThread<Job> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = ROOM - self.room.available_permits();
        out.debug_struct("DatabaseThread")
            .field("waiting", &waiting)
            .field("closed", &self.room.is_closed())
            .finish()
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
            let open = move |_: &dyn Fn() -> bool| {
                let _ending = ending;
                let _ = released.recv();
                Err(OpenError::ThreadEnded)
            };
            let mut starting = pin!(DatabaseThread::<()>::start(open, |_, _| {}));
            let polled = poll_fn(|context| Poll::Ready(starting.as_mut().poll(context).is_pending()));
            assert!(polled.await);
        }
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty), "it hangs");
        drop(release);
        assert_eq!(ended.recv(), Err(mpsc::RecvError));
    }
}
