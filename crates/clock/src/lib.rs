//! Time as a dependency. The only crate that reads the machine's clocks.
//!
//! What lives here: [`Instant`], which goes on counting while the machine is suspended; the [`Clock`] trait that
//! everything above takes instead of calling the system; the [`WallClock`] trait, whose one use is to keep an epoch
//! rising after a restore from backup; the system's implementations of both, [`SystemClock`] and [`SystemWallClock`];
//! [`Alarm`], for a thread that waits for a moment that others move; and [`Readings`] of all clocks, for who examines them.
//!
//! What does not: mock clocks (crate `testing-time`), deadlines that kill (crate `vvm-deadman`).
//!
//! Why not `std::time::Instant`: on Linux it stops during suspend (rust-lang/rust#87906), so a laptop lid or a paused
//! virtual machine would leave a leader believing in a lease that has long expired.
#![forbid(unsafe_code)]

mod instant;
mod readings;
mod system;
mod wall;

pub use instant::Instant;
pub use readings::Readings;
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
/// Two instants compare only when they came from the same clock (invariant I1 assumes that the *rates* of different
/// clocks differ by at most 10 %, and nothing about their values).
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
