//! A wall clock that shows what it was set to: wall clocks jump, and so does this one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::WallClock;

/// A wall clock that is set, forwards or back. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MockWallClock(Arc<Mutex<Duration>>);

impl MockWallClock {
    /// A clock that shows 1970-01-01 UTC: an epoch made with it comes from the storage alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on the clock shows `since_unix_epoch`.
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
    fn shows_what_it_was_set_to_in_every_clone() {
        let clock = MockWallClock::new();
        let shown = clock.clone();
        for seconds in [1_800_000_000, 5] {
            clock.set(Duration::from_secs(seconds));
            assert_eq!(shown.since_unix_epoch(), Duration::from_secs(seconds));
        }
    }
}
