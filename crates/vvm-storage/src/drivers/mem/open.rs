//! The data that handles share.

use super::rows::Rows;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vvm_clock::Clock;

/// Slots, settings and documents in memory.
#[derive(Debug)]
pub struct MemDatabase {
    /// The clock that ages are counted on: one for the database, since those who share it may have clocks of
    /// their own.
    pub(super) clock: Arc<dyn Clock>,
    rows: Mutex<Rows>,
}

impl MemDatabase {
    /// An empty database that counts the age of its records on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, rows: Mutex::default() })
    }

    /// Every change is one assignment, or a batch in which nothing can panic, so a panic elsewhere leaves
    /// whole rows: poison carries no information here.
    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
