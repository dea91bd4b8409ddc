//! Driver `sqlite` beyond the contract: what opening refuses, what goes wrong in use, and several processes.
#![cfg(feature = "sqlite")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod faults;
mod file;
mod opening;
mod processes;
