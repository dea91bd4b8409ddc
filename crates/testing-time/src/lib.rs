//! Clocks that tests and simulations move by hand.
//!
//! What lives here: [`MockClock`], which stands still until somebody advances it, and can advance itself to the next
//! sleeper when everything is idle; [`DriftingClock`], a view of one with a rate and a reading of its own;
//! [`IsolatedClock`], which only its owner moves; [`MockWallClock`], which is set.
//!
//! What does not: the machine's clocks (crate `vvm-clock`), and the trigger that records instead of killing (crate
//! `vvm-deadman`, feature `testing`). Nothing here reads the machine's time or starts a thread, so that a run with the same
//! input takes the same course.
#![forbid(unsafe_code)]

mod drifting;
mod isolated;
mod mock;
mod wall;

pub use drifting::{DriftingClock, Rate};
pub use isolated::{IsolatedClock, IsolatedView};
pub use mock::MockClock;
pub use wall::MockWallClock;
