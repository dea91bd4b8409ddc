//! One probe: it does one thing again and again, and notes when that was late.

use crate::{late::Span, repeating::Repeating};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// Measures until it is dropped.
pub(crate) struct Probe {
    name: String,
    shared: Arc<Shared>,
    _acting: Repeating,
}

struct Shared {
    /// Lateness that an idle machine has, too, and that does not count.
    tolerated: Duration,
    seen: Mutex<Seen>,
}

struct Seen {
    /// When the action under way should be done. A thread that has not begun is late, too.
    due: Instant,
    late: Vec<Span>,
}

impl Probe {
    /// Starts one. `act` takes no longer than `normal` + `tolerated` on a machine that serves it, and is
    /// repeated after `pause`.
    pub(crate) fn start(
        name: &str,
        (normal, tolerated, pause): (Duration, Duration, Duration),
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let seen = Seen { due: SystemClock::read().after(normal), late: Vec::new() };
        let shared = Arc::new(Shared { tolerated, seen: Mutex::new(seen) });
        let acting = Repeating::start(name, pause, {
            let shared = Arc::clone(&shared);
            move || {
                act();
                shared.done(pause, normal);
            }
        })?;
        Ok(Self { name: name.to_owned(), shared, _acting: acting })
    }

    /// Returns its name, and when it was late, up to now.
    pub(crate) fn late(&self, now: Instant) -> (String, Vec<Span>) {
        let seen = self.shared.seen();
        let under_way = (seen.due, now);
        let is_late = now > seen.due.after(self.shared.tolerated);
        let late = seen.late.iter().copied().chain(is_late.then_some(under_way)).collect();
        (self.name.clone(), late)
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
