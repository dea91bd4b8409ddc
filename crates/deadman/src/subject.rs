//! Who a deadline belongs to: what the last words of a process name.

use std::{fmt, sync::Arc};

/// The leadership behind a deadline. Cheap to clone; the names are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The leadership key, for people.
    pub key: Arc<str>,
    /// The holder, for people.
    pub holder: Arc<str>,
    /// The epoch (fencing token) of the leadership.
    pub epoch: u64,
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "leadership {} of {}, epoch {}", self.key, self.holder, self.epoch)
    }
}
