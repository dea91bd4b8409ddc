//! [`Health`]: runs the checks of `--check`, and counts failures.

use super::args::WorkArgs;
use std::{fmt, io, sync::Arc, time::Duration};
use vvm_clock::{Clock, Span};
use vvm_containment::{Ended, Helper, HelperError, Helpers};
use vvm_host::status::HostStatus;

/// The checks of a command.
#[derive(Debug)]
pub(super) struct Health {
    /// For `sh -c`.
    check: String,
    interval: Duration,
    timeout: Duration,
    failures: u32,
    clock: Arc<dyn Clock>,
}

/// A check has failed too often in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unhealthy {
    check: String,
    failures: u32,
    last: Failure,
}

/// How one check failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Failure {
    #[error("no answer within {}", Span(*.0))]
    TimedOut(Duration),
    #[error("it {0}")]
    Ended(Ended),
    #[error("it could not be started: {0}")]
    System(io::ErrorKind),
}

/// For people.
impl fmt::Display for Unhealthy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, failures, last } = self;
        let times = if *failures == 1 { "once".into() } else { format!("{failures} times in a row") };
        write!(out, "the check `{check}` failed {times}: {last}")
    }
}

impl Health {
    /// Returns the checks that the options ask for, if any.
    pub(super) fn of(work: &WorkArgs, clock: &Arc<dyn Clock>) -> Option<Self> {
        let check = work.check.clone()?;
        let (interval, timeout, failures) =
            (work.check_interval, work.check_timeout, work.check_failures.get());
        Some(Self { check, interval, timeout, failures, clock: Arc::clone(clock) })
    }

    /// Waits until too many checks in a row have failed. The first check begins an interval after the call,
    /// because a command needs time before it can answer.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the next call counts from zero.
    pub(super) async fn fails(&self, helpers: &Helpers, status: &HostStatus) -> Unhealthy {
        let mut in_a_row = 0;
        loop {
            self.clock.sleep(self.interval).await;
            let looked = self.look(helpers).await;
            match looked {
                Ok(()) => in_a_row = 0,
                Err(last) => {
                    status.check_failed();
                    in_a_row += 1;
                    if in_a_row >= self.failures {
                        return Unhealthy { check: self.check.clone(), failures: self.failures, last };
                    }
                }
            }
        }
    }

    async fn look(&self, helpers: &Helpers) -> Result<(), Failure> {
        let limit = self.clock.now().after(self.timeout);
        match helpers.run(Helper::Check, &self.clock, limit).await {
            Ok(Ended::Exited(0)) => Ok(()),
            Ok(ended) => Err(Failure::Ended(ended)),
            Err(HelperError::TooLong) => Err(Failure::TimedOut(self.timeout)),
            Err(HelperError::System(cause)) => Err(Failure::System(cause)),
        }
    }
}
