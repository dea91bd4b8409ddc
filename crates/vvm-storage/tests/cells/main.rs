//! The rules of `Cells` that the public suites can't see: a program of its own, which is built in seconds.
#![cfg(feature = "cells")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy knows tests, but not their helpers")]

mod database;
mod rules;
