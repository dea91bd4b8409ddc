//! Fail-over.
#![cfg(feature = "postgres")]
