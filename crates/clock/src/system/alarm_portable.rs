//! An alarm that one thread waits for and any thread may set, where there is no timerfd. Stands still during
//! suspend wherever `std::time::Instant` does.

use crate::Instant;
use std::{
    io,
    sync::{Condvar, Mutex, OnceLock, PoisonError},
};

pub(super) fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(std::time::Instant::now);
    // One nanosecond in, so that no reading is the origin itself, which stands for "long past".
    Instant::from_nanos(1).after(origin.elapsed())
}

/// An alarm on the machine's clock ([`SystemClock`](crate::SystemClock)) that one thread waits for and any
/// thread may set.
#[derive(Debug)]
pub struct Alarm {
    deadline: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// None here; where there are timerfds, when the process is out of them.
    pub fn new() -> io::Result<Self> {
        Ok(Self { deadline: Mutex::new(None), changed: Condvar::new() })
    }

    /// Replaces whatever was set; a thread that is waiting now waits for this one.
    pub fn set(&self, deadline: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
        self.changed.notify_all();
    }

    /// Returns once the alarm has gone off, or early: the caller looks at the clock anyway. Goes off once for
    /// each time it is set.
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
