//! Time that goes on while the machine is suspended, as a dependency that tests can replace.
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
//! - [`Clock`], [`Instant`], [`Sleep`]: what code takes instead of the machine's clock.
//! - [`SystemClock`]: the machine's, on any async runtime, or none.
//! - [`WallClock`], [`SystemWallClock`]: the date. Its one use is to keep an epoch rising after a restore
//!   from backup.
//! - [`Alarm`]: for a thread that waits for a moment that other threads move.
//! - [`Readings`]: all clocks of the machine at one moment, for diagnosis.
//! - [`Span`]: a duration as messages show it.
//!
//! Only this crate reads the machine's clocks. `std::time::Instant` stops during suspend on Linux
//! (rust-lang/rust#87906): a laptop lid or a paused virtual machine would leave a leader believing in a lease
//! that has long expired. Clocks for tests are in the crate `testing-time`.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "all others read time through this crate"
)]

mod instant;
mod readings;
mod span;
mod system;
mod wall;

pub use instant::Instant;
pub use readings::Readings;
pub use span::Span;
pub use system::{Alarm, SystemClock};
pub use wall::{SystemWallClock, WallClock};

use std::{fmt::Debug, pin::Pin, time::Duration};

/// A future that resolves once a clock has reached a deadline.
///
/// Boxed, so that `Arc<dyn Clock>` is the one seam for system, mock, drifting and isolated clocks.
///
/// # Cancel safety
/// Dropping it cancels the wait and frees its timer; nothing else happens.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A monotonic clock that counts suspend.
///
/// Two instants compare only when they came from the same clock (invariant I1 assumes that the *rates* of
/// different clocks differ by at most 10 %, and nothing about their values).
pub trait Clock: Debug + Send + Sync + 'static {
    /// The present moment. Never goes back.
    fn now(&self) -> Instant;

    /// Resolves at or after `deadline`, never before; at once when it has passed.
    fn sleep_until(&self, deadline: Instant) -> Sleep;

    /// Resolves once `span` has passed from now.
    fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now().after(span))
    }
}
