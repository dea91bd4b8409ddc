//! Kills this process at a deadline that only a confirmed renewal moves, also if the process hangs, is
//! stopped or frozen.
//!
//! ```
//! # fn main() -> Result<(), vvm_deadman::ArmError> {
//! use std::time::Duration;
//! use vvm_deadman::{Deadman, Subject, SystemOptions};
//!
//! let deadman = Deadman::system(SystemOptions::default())?;
//! let subject = Subject { key: "payroll".into(), holder: "10.0.0.7".into(), epoch: 7 };
//! let sent = deadman.now();
//! let armed = deadman.arm(subject, sent.after(Duration::from_secs(16)))?;
//! // A renewal that was sent 5 s later is confirmed:
//! deadman.confirm([(&armed, sent.after(Duration::from_secs(21)))]);
//! // The work has stopped:
//! deadman.disarm(armed);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Deadman`], [`Armed`], [`Subject`]: a set of deadlines of which the earliest rules (I4).
//! - [`SystemTrigger`], [`SystemOptions`], [`ThreadsAlone`]: what ends the process: a thread, and the
//!   kernel's timer behind it.
//! - [`Trigger`]: the seam between the two, for a host that also tells a guardian, and for tests.
//! - [`ArmError`], [`EXIT_STATUS`], [`SECOND_LAYER_BEHIND`]: why nothing was armed, and how the process ends.
//! - `KernelTimer`, `WallClockState` (Linux): the timer alone, and whether the kernel keeps the wall clock in
//!   step.
//!
//! When a deadline is due is for the caller to say: `ielections` derives it from the TTL. All `unsafe` of the
//! workspace stands in this crate's module `system`.
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
