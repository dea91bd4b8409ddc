//! A monotonic clock that counts suspend, behind a trait that tests can replace.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use std::time::Duration;
//! use vvm_clock::{Clock, SystemClock};
//!
//! let clock = SystemClock::start()?;
//! let deadline = clock.now().after(Duration::from_millis(10));
//! clock.sleep_until(deadline).await;
//! assert!(clock.now() >= deadline);
//! # Ok(())
//! # }
//! ```
//!
//! `std::time::Instant` stops during suspend on Linux (rust-lang/rust#87906). A leader that measures a lease with it
//! would still trust a lease that expired during a suspend. Clocks for tests are in the crate `testing-time`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the workspace reads time only through this crate"
)]

#[cfg(not(target_os = "linux"))]
compile_error!("vvm-clock needs Linux: it uses `CLOCK_BOOTTIME`, which counts suspend, and a timerfd");

mod instant;
mod readings;
mod system;

pub use instant::{DisplayDuration, Instant};
pub use readings::Readings;
pub use system::{Alarm, SystemClock};

use std::{
    fmt::Debug,
    pin::Pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A future that resolves once a clock has reached a deadline. Boxed, so that the trait is usable as `dyn Clock`.
/// Dropping it cancels the wait and frees its timer.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A monotonic clock that counts suspend.
///
/// Only instants of the same clock can be compared. Invariant I1 assumes that the *rates* of different clocks
/// differ by at most 10 %, and nothing about their values.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the current time. It never goes back.
    fn now(&self) -> Instant;

    /// Waits until `deadline`, and never ends before it. Resolves at once if it has passed.
    fn sleep_until(&self, deadline: Instant) -> Sleep;

    /// Waits for `span` from the call.
    fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now().after(span))
    }
}

/// Wall-clock time. It may jump and may be wrong: use it only where a wrong value does no harm.
///
/// A new epoch is `max(stored + 1, unix milliseconds)`, so that it rises even after the storage was restored
/// from a backup. No other part of safety depends on the date.
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
