//! [`Since`]: when a leadership began, by its epoch.

use ielections::Epoch;
use jiff::{SignedDuration, Timestamp};
use std::{fmt, time::Duration};
use vvm_clock::{SystemWallClock, WallClock as _};

/// A leadership is not older than this. Epochs that would make it older do not come from a clock.
const OLDEST: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// `, since 2026-11-22T09:00:00Z`, or nothing if the epoch does not tell. Only for people: an epoch is the
/// wall clock of the claim, except after a clock that went back.
pub(crate) struct Since(pub(crate) Epoch);

impl fmt::Display for Since {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |since: Duration| Timestamp::default().checked_add(since).ok();
        let (Some(began), Some(now)) =
            (at(Duration::from_millis(self.0.get())), at(SystemWallClock.since_unix_epoch()))
        else {
            return Ok(());
        };
        let age = now.duration_since(began);
        if age < SignedDuration::from_secs(-60) || age > OLDEST {
            return Ok(());
        }
        write!(out, ", since {began:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_epochs_near_the_present_tell_the_time() {
        let now = u64::try_from(SystemWallClock.since_unix_epoch().as_millis()).unwrap();
        let since = |millis| Since(Epoch::new(millis).unwrap()).to_string();
        let shown = since(now - 3_600_000);
        assert!(shown.starts_with(", since 20") && shown.ends_with('Z'), "{shown}");
        for strange in [7, now + 3_600_000, now / 2, Epoch::MAX] {
            assert_eq!(since(strange), "");
        }
    }
}
