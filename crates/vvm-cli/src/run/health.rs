//! Runs the checks of `--check`, and counts failures.

use super::command::CommandRunner;
use std::{fmt, io, time::Duration};
use vvm_clock::Span;
use vvm_containment::{Ended, Helper, HelperError, Helpers};

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

impl CommandRunner {
    /// Waits until too many runs of `check` in a row have failed. The first one begins an interval after the call,
    /// because a command needs time before it can answer.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the next call counts from zero.
    pub(super) async fn fails_checks(&self, check: &str, helpers: &Helpers) -> Unhealthy {
        let work = &self.args.work;
        let failures = work.check_failures.get();
        let mut in_a_row = 0;
        loop {
            self.clock.sleep(work.check_interval).await;
            let looked = self.look(helpers).await;
            match looked {
                Ok(()) => in_a_row = 0,
                Err(last) => {
                    self.status.check_failed();
                    in_a_row += 1;
                    if in_a_row >= failures {
                        return Unhealthy { check: check.to_owned(), failures, last };
                    }
                }
            }
        }
    }

    async fn look(&self, helpers: &Helpers) -> Result<(), Failure> {
        let timeout = self.args.work.check_timeout;
        let limit = self.clock.now().after(timeout);
        match helpers.run(Helper::Check, &self.clock, limit).await {
            Ok(Ended::Exited(0)) => Ok(()),
            Ok(ended) => Err(Failure::Ended(ended)),
            Err(HelperError::TooLong) => Err(Failure::TimedOut(timeout)),
            Err(HelperError::System(cause)) => Err(Failure::System(cause)),
        }
    }
}
