//! One probe: a thread that does one thing again and again, and notes when that was late.

use crate::late::Span;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// A thread that measures, until it is dropped.
pub(crate) struct Probe {
    name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stopping: AtomicBool,
    /// Lateness that an idle machine has, too, and that does not count.
    tolerated: Duration,
    seen: Mutex<Seen>,
}

struct Seen {
    /// When what is under way should be done. A thread that has not begun is late, too.
    due: Instant,
    late: Vec<Span>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe {
    /// Starts one. `prepare` runs once in its thread. `act` takes no longer than `normal` + `tolerated` on a
    /// machine that serves it, and is repeated after `pause`.
    pub(crate) fn start(
        name: &str,
        (normal, tolerated, pause): (Duration, Duration, Duration),
        prepare: impl FnOnce() + Send + 'static,
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let seen = Seen { due: SystemClock::read().after(normal), late: Vec::new() };
        let shared = Arc::new(Shared { stopping: AtomicBool::new(false), tolerated, seen: Mutex::new(seen) });
        let thread = thread::Builder::new().name(format!("probe {name}")).spawn({
            let shared = Arc::clone(&shared);
            move || {
                prepare();
                while !shared.stopping.load(Ordering::Relaxed) {
                    act();
                    shared.done(pause, normal);
                    if !pause.is_zero() {
                        SystemClock::block_for(pause);
                    }
                }
            }
        })?;
        Ok(Self { name: name.to_owned(), shared, thread: Some(thread) })
    }

    /// Its name, and when it was late, up to now.
    pub(crate) fn late(&self, now: Instant) -> (String, Vec<Span>) {
        let seen = self.shared.seen();
        let under_way = (seen.due, now);
        let is_late = now > seen.due.after(self.shared.tolerated);
        let late = seen.late.iter().copied().chain(is_late.then_some(under_way)).collect();
        (self.name.clone(), late)
    }
}

impl Shared {
    fn done(&self, pause: Duration, normal: Duration) {
        let mut seen = self.seen();
        let now = SystemClock::read();
        let due = seen.due;
        if now > due.after(self.tolerated) {
            seen.late.push((due, now));
        }
        seen.due = now.after(pause).after(normal);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A probe that panicked has measured what it has.
            drop(thread.join());
        }
    }
}
