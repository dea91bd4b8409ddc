//! What tests of elections and of their storages need, for us and for whoever writes a storage of their own.
//!
//! - [`contract`]: the suite that holds a storage to every sentence of [`TtlStorage`](crate::TtlStorage).
//! - [`document_contract`]: the same for [`DocumentStorage`](crate::DocumentStorage), where a storage has
//!   documents.
//! - [`elections_suite`]: what candidates and leaders rely on, on any storage.
//! - [`mock`]: a storage that fails, hangs, delays, reorders and is tampered with, deterministically.
//! - [`Model`]: the contract as plainly as it can be written, to compare others with.
//!
//! Behind the feature `testing`, and no part of a program that runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case is a test, and fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test may start what it likes")]

pub mod contract;
pub mod document_contract;
pub mod elections_suite;
pub mod mock;
mod model;

pub use model::{Model, ModelStorage};
