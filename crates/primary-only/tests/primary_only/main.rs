//! Primary-only services on `mem`, on a clock that only tests move. They follow MongoDB's
//! `primary_only_service_test.cpp`, but for its tests of database locks and operation contexts, which this crate does
//! not have, and of a registry that is shut down for good.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod fencing;
mod instances;
mod orchestrated;
mod rebuilding;
mod rig;
mod service_handle;
mod stepping;
#[path = "../../../vvm-orch/tests/vvm/tasks.rs"]
mod tasks;
