//! [`Clocks`]: whether the wall clocks of this machine and of a server are close enough for epochs that a server makes
//! after a fail-over.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock};

/// The claim's epoch would be far from those that the server makes after a fail-over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this machine's clock is {:.1} h {direction} the server's: epochs would not rise after a fail-over. \
     Correct the clock that is wrong", difference.as_secs_f64() / 3600.0
)]
pub(super) struct ClockIsFar {
    /// Between the two clocks.
    difference: Duration,
    /// How this machine's clock is to the server's.
    direction: &'static str,
}

/// No claim is made at this difference. Half of the day by which epochs of a timeline exceed those before:
/// the clocks of two servers may take the other half.
const FAR: Duration = Duration::from_secs(12 * 60 * 60);

/// What the server's wall clock showed, and when.
#[derive(Default, Debug)]
pub(super) struct Clocks(Mutex<Option<(Instant, Duration)>>);

impl Clocks {
    pub(super) fn seen(&self, clock: &impl Clock, server: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((clock.now(), server));
    }

    /// Fails if the difference is too large for a claim.
    pub(super) fn check(&self, clock: &impl Clock) -> Result<(), ClockIsFar> {
        let Some((at, server)) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else {
            return Ok(());
        };
        let (ours, server) = (SystemWallClock.since_unix_epoch(), server + at.until(clock.now()));
        let difference = ours.abs_diff(server);
        let direction = if ours > server { "ahead of" } else { "behind" };
        if difference < FAR { Ok(()) } else { Err(ClockIsFar { difference, direction }) }
    }
}
