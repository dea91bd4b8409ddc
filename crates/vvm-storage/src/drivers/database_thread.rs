use crate::opening::{OpenError, OpenErrorKind};
use std::{
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::SystemClock;

/// How long a drop waits for the thread: it waits for locks for a second at most, unless it hangs in the kernel.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A thread that ends once its queue is closed and empty. The owner closes the queue before it joins or drops this.
#[derive(Debug)]
pub(super) struct DatabaseThread {
    ended: watch::Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl DatabaseThread {
    pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<Self, OpenError> {
        let (ending, ended) = watch::channel(());
        let run = move || {
            // Dropped last, after all that this thread owns.
            let _ending = ending;
            run();
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run).map_err(|cause| {
            let way_out = "allow more (ulimit -u, TasksMax=, pids.max)";
            let why = format!("the system refuses a thread for the database: {cause}: {way_out}");
            OpenError::new(OpenErrorKind::System, why)
        })?;
        Ok(Self { ended, thread: Mutex::new(Some(thread)) })
    }

    /// Returns when the thread has ended and is joined. May be dropped; dropping the thread joins it.
    pub(super) async fn ended(&self) {
        // Fails when the thread has dropped the sender, and only then.
        while self.ended.clone().changed().await.is_ok() {}
        self.join();
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_panic)) = thread.map(JoinHandle::join) {
            // The panic was printed where it happened, and its callers got `Unknown`.
            tracing::error!("the thread that owned the database had panicked");
        }
    }
}

impl Drop for DatabaseThread {
    /// Joins the thread (I9), which takes as long as the jobs in the queue: without a close, up to a second if the
    /// database is locked. A thread that hangs is left behind: this one has signals and renewals to handle (I10).
    fn drop(&mut self) {
        let give_up_at = SystemClock::read().after(DROP_TIMEOUT);
        let has_ended = |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        while !has_ended(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            if SystemClock::read() >= give_up_at {
                tracing::error!(
                    "the thread that owns the database hangs, and is left behind: check its disk"
                );
                return;
            }
            SystemClock::block_for(POLL_INTERVAL);
        }
        self.join();
    }
}
