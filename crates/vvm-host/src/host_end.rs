//! [`HostEnd`]: the end of a host as its guardian sees it, and whether the guardian releases its record.

use ielections::Ttl;
use std::time::Duration;
use vvm_clock::Instant;

/// The longest that a release may delay the end of `vvm`: a history entry and a deletion, with some retries.
/// With a slower storage, the next leader waits for the rest of the TTL.
const LIMIT: Duration = Duration::from_secs(5);

/// How a host ended. All times are on the guardian's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostEnd {
    /// Whether every descendant is proven to have ended.
    pub proven: bool,
    /// Whether it ended in an orderly way: then it has released the record itself, or had a reason not to.
    pub orderly: bool,
    /// When it was reaped.
    pub reaped_at: Instant,
    /// Its last kill deadline.
    pub deadline: Option<Instant>,
}

impl HostEnd {
    /// Returns when a release begins, after `quiet_time`, and when it is given up. `None` if there is no
    /// proof (I6), after an orderly end, and if the lease ends before.
    pub fn release_window(&self, now: Instant, ttl: Ttl, quiet_time: Duration) -> Option<(Instant, Instant)> {
        if !self.proven || self.orderly {
            return None;
        }
        // From the kill deadline to the end of the lease is a fifth of the TTL. Later another may lead.
        let rest = ttl.get() / 5;
        let lease_ends = self.deadline.map_or(Instant::NEVER, |deadline| deadline.after(rest));
        let from = now.max(self.reaped_at.after(quiet_time));
        let until = from.after(LIMIT).min(lease_ends);
        (from < until).then_some((from, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(100_000_000_000);

    fn window(end: HostEnd, quiet_time: u64) -> Option<(Instant, Instant)> {
        let ttl = Ttl::new(Duration::from_secs(20)).unwrap();
        end.release_window(NOW, ttl, Duration::from_secs(quiet_time))
    }

    /// Shows I6.
    #[test]
    fn record_is_released_only_with_proof_and_before_the_lease_ends() {
        let seconds = Duration::from_secs;
        let end =
            HostEnd { proven: true, orderly: false, reaped_at: NOW, deadline: Some(NOW.after(seconds(9))) };
        assert_eq!(window(end, 0), Some((NOW, NOW.after(LIMIT))));
        assert_eq!(window(HostEnd { deadline: None, ..end }, 0), Some((NOW, NOW.after(LIMIT))));
        assert_eq!(window(HostEnd { proven: false, ..end }, 0), None);
        assert_eq!(window(HostEnd { orderly: true, ..end }, 0), None);
        let at_deadline = HostEnd { deadline: Some(NOW), ..end };
        assert_eq!(window(at_deadline, 0), Some((NOW, NOW.after(seconds(4)))));
        let expired = HostEnd { deadline: Some(NOW.before(seconds(4))), ..end };
        assert_eq!(window(expired, 0), None);
        assert_eq!(window(end, 12), Some((NOW.after(seconds(12)), NOW.after(seconds(13)))));
        assert_eq!(window(end, 13), None);
    }
}
