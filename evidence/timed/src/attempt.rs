//! One attempt, and its checks of upper bounds.

use crate::{
    late::{Millis, Missed, Verdict, judge},
    probes::Probes,
};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// Between two looks at a condition: looks must not take the processor from the processes.
const PACE: Duration = Duration::from_millis(1);

/// When a condition that still does not hold is given up: this long after its bound.
const HANGS: Duration = Duration::from_secs(30);

/// One attempt of a test, measured by probes from its beginning to its end.
pub struct Attempt {
    probes: Probes,
    missed: Mutex<Option<Missed>>,
}

/// A bound was missed, and the machine was late for at least as long. Only [`Attempt`]'s checks make one.
#[derive(Debug)]
#[must_use = "pass it on with `?`"]
pub struct Late(());

impl Attempt {
    pub(crate) fn begin() -> Self {
        Self { probes: Probes::start(), missed: Mutex::new(None) }
    }

    /// Waits for `condition`, which must hold at `since` + `bound`. Returns how long after `since` it was
    /// seen to hold.
    ///
    /// # Errors
    /// The bound was missed by no more than the machine was late.
    ///
    /// # Panics
    /// When the bound was missed by more.
    #[track_caller]
    pub fn within(
        &self,
        what: &str,
        bound: Duration,
        since: Instant,
        mut condition: impl FnMut() -> bool,
    ) -> Result<Duration, Late> {
        let give_up_at = since.after(bound).after(HANGS);
        while !condition() {
            if SystemClock::read() > give_up_at {
                break;
            }
            SystemClock::block_for(PACE);
        }
        self.took(what, bound, since)
    }

    /// Checks that an event that has just happened came by `since` + `bound`. Returns the time since `since`.
    ///
    /// # Errors
    /// The bound was missed by no more than the machine was late.
    ///
    /// # Panics
    /// When the bound was missed by more.
    #[track_caller]
    pub fn took(&self, what: &str, bound: Duration, since: Instant) -> Result<Duration, Late> {
        self.reported(what, bound, SystemClock::read().since(since), since)
    }

    /// Checks a span that another process has measured, between `since` and now.
    ///
    /// # Errors
    /// The bound was missed by no more than the machine was late between `since` and now.
    ///
    /// # Panics
    /// When the bound was missed by more.
    #[track_caller]
    pub fn reported(
        &self,
        what: &str,
        bound: Duration,
        took: Duration,
        since: Instant,
    ) -> Result<Duration, Late> {
        let late = self.probes.late(since, SystemClock::read());
        match judge(what, bound, took, late) {
            Verdict::Held => {
                println!("{what} took {} of {}", Millis(took), Millis(bound));
                Ok(took)
            }
            Verdict::Inconclusive(missed) => {
                *self.missed.lock().unwrap_or_else(PoisonError::into_inner) = Some(missed);
                Err(Late(()))
            }
            Verdict::Failed(missed) => panic!("{missed}"),
        }
    }

    /// Adds a probe that sends `request` again and again, on a connection of its own. A healthy server
    /// answers within `normal`. The request needs its own time-out.
    pub fn watch(&self, what: &str, normal: Duration, request: impl FnMut() + Send + 'static) {
        self.probes.add(what, normal, request);
    }

    /// Returns the bound whose miss was inconclusive, even if the test did not pass [`Late`] on.
    pub(crate) fn late(&self) -> Option<Missed> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Attempt").field("missed", &self.missed).finish_non_exhaustive()
    }
}
