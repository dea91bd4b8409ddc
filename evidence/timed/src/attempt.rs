//! One attempt, and its checks of upper bounds.

use crate::{
    late::{Missed, Verdict, judge},
    probes::Probes,
};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// Between two looks at a condition, so that the looks do not take the processor from what they look at.
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

    /// Checks that what has just happened did so by `since` + `bound`. Returns how long after `since` that
    /// is.
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
                println!("{what} took {took:.3?} of {bound:?}");
                Ok(took)
            }
            Verdict::Inconclusive(missed) => {
                *self.missed.lock().unwrap_or_else(PoisonError::into_inner) = Some(missed);
                Err(Late(()))
            }
            Verdict::Failed(missed) => panic!("{missed}"),
        }
    }

    /// Measures with one more probe: `request` is sent again and again on a connection of its own, and a
    /// server that serves answers it within `normal`. It has a time-out of its own.
    pub fn watch(&self, what: &str, normal: Duration, request: impl FnMut() + Send + 'static) {
        self.probes.add(what, normal, request);
    }

    /// The bound that was missed without a verdict, whether or not the test passed that on.
    pub(crate) fn late(&self) -> Option<Missed> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Attempt").field("missed", &self.missed).finish_non_exhaustive()
    }
}
