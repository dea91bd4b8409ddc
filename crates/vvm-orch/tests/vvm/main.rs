//! The orchestrator on a storage in memory, and on a clock that only tests move.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy exempts tests, but not their helpers"
)]

mod environment;
mod loss;
mod rig;
mod services;
mod stopping;
mod tasks;
