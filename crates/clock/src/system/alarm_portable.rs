//! [`Alarm`] without a timerfd. It stops during suspend if `std::time::Instant` does.

use crate::Instant;
use std::{
    io,
    sync::{Condvar, Mutex, OnceLock, PoisonError},
};

pub(super) fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(std::time::Instant::now);
    // One nanosecond after the origin, because the origin itself stands for "long ago".
    Instant::from_nanos(1).after(origin.elapsed())
}

/// A timer on the clock of [`SystemClock`](crate::SystemClock) that one thread waits for and any thread may
/// set.
#[derive(Debug)]
pub struct Alarm {
    deadline: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Alarm {
    /// Returns an alarm that is not set.
    ///
    /// # Errors
    /// None on this system. On Linux, fails if the process is out of file descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { deadline: Mutex::new(None), changed: Condvar::new() })
    }

    /// Sets the alarm, and replaces the previous setting, also for a thread that waits already.
    pub fn set(&self, deadline: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
        self.changed.notify_all();
    }

    /// Waits until the alarm goes off, which it does once for each setting. May return early: the caller
    /// compares the clock with its deadline.
    pub fn wait(&self) {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = now();
            match *deadline {
                Some(at) if at <= now => {
                    *deadline = None;
                    return;
                }
                Some(at) => {
                    let (guard, _) = self
                        .changed
                        .wait_timeout(deadline, now.until(at))
                        .unwrap_or_else(PoisonError::into_inner);
                    deadline = guard;
                }
                None => {
                    deadline = self.changed.wait(deadline).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
