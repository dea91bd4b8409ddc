//! [`MockWallClock`]: a wall clock that a test sets.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::WallClock;

/// A wall clock that can be set forwards and back. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MockWallClock(Arc<Mutex<Duration>>);

impl MockWallClock {
    /// Returns a clock that shows 1970-01-01 UTC. A new epoch then depends only on the stored one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock.
    pub fn set(&self, since_unix_epoch: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since_unix_epoch;
    }
}

impl WallClock for MockWallClock {
    fn since_unix_epoch(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_is_visible_in_every_clone() {
        let clock = MockWallClock::new();
        let shown = clock.clone();
        for seconds in [1_800_000_000, 5] {
            clock.set(Duration::from_secs(seconds));
            assert_eq!(shown.since_unix_epoch(), Duration::from_secs(seconds));
        }
    }
}
