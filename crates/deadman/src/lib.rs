//! The kill deadline: what ends this process at a moment that only a confirmed renewal can move.
//!
//! What lives here: [`Deadman`], a set of armed deadlines of which the earliest rules (I4); the [`Trigger`] seam, and
//! behind it the system's pair of a thread and a kernel timer. All `unsafe` of the workspace stands in this crate, in
//! module `system`; and [`WallClockState`] with it, which takes some.
//!
//! What does not: when a deadline is due (`ielections` derives it from the TTL), and clocks for tests (`testing-time`).
#![deny(unsafe_code)]

mod armed;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod recording;
mod subject;
#[allow(unsafe_code, reason = "POSIX timers, the signal mask, adjtimex and `_exit` have no safe interface")]
mod system;
mod trigger;

pub use armed::{Armed, Deadman};
pub use error::ArmError;
pub use subject::Subject;
pub use system::{EXIT_STATUS, SECOND_LAYER_BEHIND, SystemOptions, SystemTrigger, ThreadsAlone};
#[cfg(target_os = "linux")]
pub use system::{KernelTimer, WallClockState};
pub use trigger::Trigger;
