//! Runs the checks of `--check`, and counts failures.

use super::args::WorkArgs;
use rustix::io::Errno;
use std::{fmt, sync::Arc, time::Duration};
use vvm_clock::{Clock, DisplayDuration};
use vvm_containment::{Helper, HelperError, Helpers, ProcessEnd};
use vvm_host::{operate::ResourceLimit, status::HostStatus};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unhealthy {
    check: String,
    failures: u32,
    last: HealthFailure,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum HealthFailure {
    #[error("no answer within {}", DisplayDuration(*.0))]
    TimedOut(Duration),
    #[error("it {0}")]
    Ended(ProcessEnd),
    #[error("it could not be started: {}", ResourceLimit::from(*.0))]
    System(Errno),
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, failures, last } = self;
        let times = if *failures == 1 { "once".into() } else { format!("{failures} times in a row") };
        write!(out, "the check `{check}` failed {times}: {last}")
    }
}

/// Runs the check of `args` again and again. Returns once too many runs in a row have failed. The first one begins an
/// interval after the call, because a command needs time before it can answer. Dropped, it forgets its count.
pub(super) async fn fails_checks(
    check: &str,
    args: &WorkArgs,
    helpers: &Helpers,
    (status, clock): (&HostStatus, &Arc<dyn Clock>),
) -> Unhealthy {
    let failures = args.check_failures.get();
    let mut in_a_row = 0;
    loop {
        clock.sleep(args.check_interval).await;
        match look(helpers, clock, args.check_timeout).await {
            Ok(()) => in_a_row = 0,
            Err(last) => {
                status.check_failed();
                in_a_row += 1;
                if in_a_row >= failures {
                    return Unhealthy { check: check.to_owned(), failures, last };
                }
            }
        }
    }
}

async fn look(helpers: &Helpers, clock: &Arc<dyn Clock>, timeout: Duration) -> Result<(), HealthFailure> {
    match helpers.run(Helper::Check, clock, clock.now().after(timeout)).await {
        Ok(ProcessEnd::Exited(0)) => Ok(()),
        Ok(ended) => Err(HealthFailure::Ended(ended)),
        Err(HelperError::TooLong) => Err(HealthFailure::TimedOut(timeout)),
        Err(HelperError::System(cause)) => Err(HealthFailure::System(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_that_cannot_fork_names_the_limit() {
        let unhealthy =
            Unhealthy { check: "true".into(), failures: 1, last: HealthFailure::System(Errno::AGAIN) };
        let text = unhealthy.to_string();
        assert!(text.contains("it could not be started: ") && text.contains("ulimit -u"), "{text}");
        assert!(!text.contains("operation would block"), "{text}");
    }
}
