//! [`MemDatabase`]: the data that handles share.

use super::rows::Rows;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vvm_clock::Clock;

/// Slots, settings and documents in memory.
#[derive(Debug)]
pub struct MemDatabase {
    /// Ages count on this clock. It belongs to the database, because its users may have clocks of their own.
    pub(super) clock: Arc<dyn Clock>,
    rows: Mutex<Rows>,
}

impl MemDatabase {
    /// Returns an empty database that counts the ages of its records on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, rows: Mutex::default() })
    }

    /// Locks the rows. Every change is one assignment, or a batch in which nothing panics. So poison carries
    /// no information: a panic leaves whole rows.
    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
