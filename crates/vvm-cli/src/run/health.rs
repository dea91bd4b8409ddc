//! Whether the command works, as somebody else sees it.
//!
//! What lives here: looking again and again, and counting. How to ask for a page stands in `page`; how a line
//! for the shell is run, in `vvm_containment`.

mod page;

use crate::cli::args::{Check, WorkArgs};
use std::{fmt, io, sync::Arc, time::Duration};
use vvm_clock::Clock;
use vvm_containment::{Ended, Helper, HelperError, Helpers};
use vvm_host::status::HostStatus;

/// The checks of one worker.
#[derive(Debug)]
pub(super) struct Health {
    check: Check,
    interval: Duration,
    timeout: Duration,
    failures: u32,
    clock: Arc<dyn Clock>,
}

/// A check that has failed as often in a row as was allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unhealthy {
    check: String,
    failures: u32,
    last: Failure,
}

/// One check that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Failure {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("it {0}")]
    Ended(Ended),
    #[error("it could not be started: {0}")]
    System(io::ErrorKind),
    #[error(transparent)]
    Page(#[from] page::Failure),
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
    /// As it was asked for; none when it was not.
    pub(super) fn of(work: &WorkArgs, clock: &Arc<dyn Clock>) -> Option<Self> {
        let check = work.check.clone()?;
        let (interval, timeout, failures) =
            (work.check_interval, work.check_timeout, work.check_failures.get());
        Some(Self { check, interval, timeout, failures, clock: Arc::clone(clock) })
    }

    /// Resolves when so many checks in a row have failed. The first one comes an interval after the call: a
    /// command needs a moment before it can answer.
    ///
    /// # Cancel safety
    /// May be dropped at will; the next call begins to count anew.
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
                        return Unhealthy { check: self.check.to_string(), failures: self.failures, last };
                    }
                }
            }
        }
    }

    async fn look(&self, helpers: &Helpers) -> Result<(), Failure> {
        let limit = self.clock.now().after(self.timeout);
        match &self.check {
            Check::Command(_) => match helpers.run(Helper::Check, &self.clock, limit).await {
                Ok(Ended::Exited(0)) => Ok(()),
                Ok(ended) => Err(Failure::Ended(ended)),
                Err(HelperError::TooLong) => Err(Failure::TimedOut(self.timeout)),
                Err(HelperError::System(cause)) => Err(Failure::System(cause)),
            },
            Check::Http(page) => tokio::select! {
                biased;
                looked = page::look(page) => Ok(looked?),
                () = self.clock.sleep_until(limit) => Err(Failure::TimedOut(self.timeout)),
            },
        }
    }
}
