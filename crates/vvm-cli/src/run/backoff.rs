//! [`Backoff`]: the delays before restarts. Each is twice the last; a long run resets them.

use crate::args::WorkArgs;
use std::time::Duration;

/// The delays before restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Returns the delays that the options ask for.
    pub(super) fn of(work: &WorkArgs) -> Self {
        Self::new(work.restart_backoff, work.restart_backoff_max)
    }

    fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first }
    }

    /// Returns the delay after a run of this length.
    pub(super) fn after_a_run_of(&mut self, length: Duration) -> Duration {
        if length > self.longest {
            self.next = self.first;
        }
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_longest_and_a_long_run_resets_it() {
        let secs = Duration::from_secs;
        let mut backoff = Backoff::new(secs(1), secs(5));
        let waits = [0, 0, 5, 0].map(|length| backoff.after_a_run_of(secs(length)));
        assert_eq!(waits, [1, 2, 4, 5].map(secs));
        assert_eq!(backoff.after_a_run_of(secs(6)), secs(1));
        assert_eq!(backoff.after_a_run_of(secs(0)), secs(2));
    }

    #[test]
    fn first_delay_is_at_most_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(9), Duration::from_secs(2));
        assert_eq!(backoff.after_a_run_of(Duration::ZERO), Duration::from_secs(2));
    }
}
