//! [`Subject`]: the leadership behind a deadline, named in the process's last message.

use std::{fmt, sync::Arc};

/// The leadership behind a deadline. Clones share the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The election's key, for operators.
    pub key: Arc<str>,
    /// The holder, for operators.
    pub holder: Arc<str>,
    /// The epoch of the leadership, its fencing token.
    pub epoch: u64,
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "leadership {} of {}, epoch {}", self.key, self.holder, self.epoch)
    }
}
