//! The document.

use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{fmt, path::PathBuf};

/// How far the copy is. Small, whatever is copied: it is written once a step.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Progress {
    /// From where.
    pub from: PathBuf,
    /// Where to.
    pub to: PathBuf,
    /// Of the plan that the copy was begun with.
    pub plan: Digest,
    /// How many files are done.
    pub files: usize,
    /// How many bytes of the next one are.
    pub offset: u64,
    /// How many bytes are done in all.
    pub bytes: u64,
    /// How many steps it took.
    pub steps: u64,
    /// Over what every step did, in their order.
    pub digest: Digest,
}

/// A SHA-256, as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Digest(String);

impl Progress {
    /// Nothing is done yet.
    pub fn begin(from: PathBuf, to: PathBuf, plan: &Plan) -> Self {
        let (plan, digest) = (plan.digest(), Digest::default());
        Self { from, to, plan, files: 0, offset: 0, bytes: 0, steps: 0, digest }
    }

    /// Whether all is done.
    pub fn is_done(&self, plan: &Plan) -> bool {
        self.files >= plan.files.len()
    }
}

impl Digest {
    /// Of what this one stands for and then `bytes`.
    #[must_use]
    pub fn with(&self, bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.as_bytes());
        hash.update(bytes);
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
