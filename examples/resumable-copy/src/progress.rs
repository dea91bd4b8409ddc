//! [`Progress`]: the document.

use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{fmt, path::PathBuf};

/// The progress of a copy. It is small, because each step writes it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Progress {
    /// The source.
    pub from: PathBuf,
    /// The destination.
    pub to: PathBuf,
    /// The digest of the plan with which the copy began.
    pub plan: Digest,
    /// The number of copied files.
    pub files: usize,
    /// The number of copied bytes of the next file.
    pub offset: u64,
    /// The number of copied bytes in all.
    pub bytes: u64,
    /// The number of steps.
    pub steps: u64,
    /// The digest over all steps in their order.
    pub digest: Digest,
}

/// A SHA-256, as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Digest(String);

impl Progress {
    /// Returns the progress of a new copy.
    pub fn begin(from: PathBuf, to: PathBuf, plan: &Plan) -> Self {
        let (plan, digest) = (plan.digest(), Digest::default());
        Self { from, to, plan, files: 0, offset: 0, bytes: 0, steps: 0, digest }
    }

    /// Returns whether all files are copied.
    pub fn is_done(&self, plan: &Plan) -> bool {
        self.files >= plan.files.len()
    }
}

impl Digest {
    /// Returns the digest of this digest followed by `bytes`.
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
