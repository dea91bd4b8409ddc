//! Wall time. A new epoch is `max(stored + 1, unix milliseconds)`, so that it rises even after the storage
//! was restored from a backup. Safety does not depend on it otherwise.

use std::{
    fmt::Debug,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Wall-clock time. It may jump and may be wrong: use it only where a wrong value does no harm.
pub trait WallClock: Debug + Send + Sync + 'static {
    /// Returns the time since 1970-01-01 UTC; zero if the clock shows an earlier date.
    fn since_unix_epoch(&self) -> Duration;
}

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWallClock;

impl WallClock for SystemWallClock {
    fn since_unix_epoch(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
