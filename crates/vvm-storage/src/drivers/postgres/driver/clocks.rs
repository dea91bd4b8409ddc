//! [`Clocks`]: how far this machine's wall clock is from the server's. Epochs come from both.

use crate::drivers::postgres::errors::DriverError;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock};

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
    pub(super) fn check(&self, clock: &impl Clock) -> Result<(), DriverError> {
        let Some((at, server)) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else {
            return Ok(());
        };
        let (ours, server) = (SystemWallClock.since_unix_epoch(), server + at.until(clock.now()));
        let difference = ours.abs_diff(server);
        let direction = if ours > server { "ahead of" } else { "behind" };
        if difference < FAR { Ok(()) } else { Err(DriverError::ClockIsFar { difference, direction }) }
    }
}
