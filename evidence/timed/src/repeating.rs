//! A thread that does one thing again and again.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use vvm_clock::SystemClock;

/// The thread. It is stopped and joined when this is dropped.
pub(crate) struct Repeating {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repeating {
    /// Starts `act`, which is repeated after `pause`.
    pub(crate) fn start(
        name: &str,
        pause: Duration,
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name(format!("probe {name}")).spawn({
            let stopping = Arc::clone(&stopping);
            move || {
                while !stopping.load(Ordering::Relaxed) {
                    act();
                    if !pause.is_zero() {
                        SystemClock::block_for(pause);
                    }
                }
            }
        })?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A probe that panicked keeps the measurements that it made before.
            drop(thread.join());
        }
    }
}
