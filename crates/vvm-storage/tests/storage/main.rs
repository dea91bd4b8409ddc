//! What needs no server: the public suites, and each rule of the crate and of its drivers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers; a server that a test plays is a task of its runtime"
)]

#[cfg(feature = "mem")]
mod campaign_for_many_slots;
#[cfg(feature = "cells")]
mod cells;
mod driver;
#[cfg(feature = "mem")]
mod elections_storage;
#[cfg(feature = "sqlite")]
mod processes;
#[cfg(feature = "mem")]
mod requests;
#[cfg(feature = "scylla")]
mod scylla_strangers;
#[cfg(all(feature = "sled", feature = "sqlite"))]
mod sled;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "mem", feature = "sled", feature = "sqlite"))]
mod suites;
