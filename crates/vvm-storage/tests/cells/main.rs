//! `Cells`: the suites on cells in memory, with and without forged answers, and each rule of its own.
#![cfg(feature = "cells")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod mem_cells;
mod rules;
mod suites;
