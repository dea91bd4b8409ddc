//! Kills this process at a deadline that only a confirmed renewal moves later, even if it hangs, is stopped or frozen.
//!
//! ```
//! # fn main() -> Result<(), vvm_deadman::ArmError> {
//! use std::time::Duration;
//! use vvm_deadman::{Deadman, Subject};
//!
//! let deadman = Deadman::system()?;
//! let subject = Subject { key: "payroll".into(), holder: "10.0.0.7".into(), epoch: 7 };
//! let sent = deadman.now();
//! let armed = deadman.arm(subject, sent.after(Duration::from_secs(16)))?;
//! // The storage confirms a renewal that was sent 5 s later:
//! deadman.confirm([(&armed, sent.after(Duration::from_secs(21)))]);
//! // The work has stopped:
//! deadman.disarm(armed);
//! # Ok(())
//! # }
//! ```
//!
//! The caller chooses the deadlines: `ielections` derives them from the TTL. All `unsafe` code of the
//! workspace is in this crate's module `system`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "vvm-deadman needs Linux: a timer of its kernel also ends a process that is stopped or frozen"
);

mod armed;
#[cfg(any(test, feature = "testing"))]
pub mod recording;
#[allow(unsafe_code, reason = "POSIX timers, the signal mask and `_exit` have no safe interface")]
mod system;

pub use armed::{ArmError, ArmedDeadline, Deadman, Subject, Trigger};
pub use system::{EXIT_STATUS, KernelTimer, SECOND_LAYER_BEHIND, SystemTrigger};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
