//! [`Outcome`]: how an instance ended in this term.

use crate::Failure;
use std::{fmt, sync::Arc};

/// How an instance ended in this term. Whether it resumes in the next one is its document's to say.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Its run returned without an error: its word that the task is done.
    Completed,
    /// Its run failed.
    Failed(Failure),
    /// Its run panicked, with this message.
    Panicked(Arc<str>),
    /// The term ended, or the runtime did, before the run or in its midst.
    Interrupted,
}

impl Outcome {
    /// Whether the task is done.
    pub fn is_completed(&self) -> bool {
        matches!(self, Self::Completed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => out.write_str("completed"),
            Self::Failed(failure) => write!(out, "failed: {failure}"),
            Self::Panicked(message) => write!(out, "panicked: {message}"),
            Self::Interrupted => out.write_str("interrupted"),
        }
    }
}
