//! Wall time, for one purpose: an epoch is `max(stored + 1, unix milliseconds)`, so that it rises even when
//! the storage was restored from a backup. Nothing about safety within one history of the storage depends on
//! it.

use std::{
    fmt::Debug,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Wall-clock time. Jumps, may be wrong, and may only ever be used where being wrong is harmless.
pub trait WallClock: Debug + Send + Sync + 'static {
    /// Time since 1970-01-01 UTC; zero when the clock claims to be before that.
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
