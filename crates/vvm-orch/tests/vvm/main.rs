//! The orchestrator on `mem`, on a clock that only tests move.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy exempts tests, but not their helpers"
)]

mod campaign;
mod engine_ended;
mod environment;
mod loss;
mod probe;
mod reference;
mod rig;
mod services;
mod shutdown;
mod starting;
mod stopping;
