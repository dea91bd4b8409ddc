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
//! - [`MockClock`]: advances only when the test calls it, or to the next sleeper when all tasks are idle.
//! - [`IsolatedClock`], [`IsolatedView`]: a clock that only its owner can advance.
//! - [`MockWallClock`]: a date that the test sets.
//!
//! Nothing here reads the machine's time or starts a thread, so equal inputs give equal runs.
#![forbid(unsafe_code)]

mod mock;

pub use mock::{IsolatedClock, IsolatedView, MockClock, MockWallClock};

/// The README's example is a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
