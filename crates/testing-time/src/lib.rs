//! Clocks that tests and simulations move by hand.
//!
//! ```
//! use std::time::Duration;
//! use testing_time::MockClock;
//! use vvm_clock::Clock;
//!
//! let clock = MockClock::new();
//! let deadline = clock.now().after(Duration::from_secs(3600));
//! let _sleep = clock.sleep_until(deadline);
//! clock.advance(Duration::from_secs(3600));
//! assert_eq!(clock.now(), deadline);
//! ```
//!
//! - [`MockClock`]: stands still until the test advances it, or advances itself to the next sleeper when all
//!   is idle.
//! - [`DriftingClock`], [`Rate`]: a view of one with a rate and a reading of its own.
//! - [`IsolatedClock`], [`IsolatedView`]: moved by its owner alone.
//! - [`MockWallClock`]: a date that the test sets.
//!
//! Nothing here reads the machine's time or starts a thread: a run with the same input takes the same course.
//! The trigger that records instead of killing is in the crate `vvm-deadman`, feature `testing`.
#![forbid(unsafe_code)]

mod drifting;
mod isolated;
mod mock;
mod wall;

pub use drifting::{DriftingClock, Rate};
pub use isolated::{IsolatedClock, IsolatedView};
pub use mock::MockClock;
pub use wall::MockWallClock;
