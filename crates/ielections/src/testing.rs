//! Public suites and test doubles, for this crate and for authors of storages.
//!
//! - [`contract`]: tests every sentence of the contract of [`TtlStorage`](crate::TtlStorage).
//! - [`document_contract`]: the same for [`DocumentStorage`](crate::DocumentStorage).
//! - [`elections_suite`]: tests elections on a storage.
//! - [`mock`]: a storage with faults: failures, delays, lost and reordered calls. Deterministic.
//! - [`Model`]: the simplest storage that keeps the contract.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case is a test, and fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

pub mod contract;
pub mod document_contract;
pub mod elections_suite;
pub mod mock;
mod model;

pub use model::{Model, ModelStorage};
