//! How a storage call fails.

use std::error::Error;

/// The cause below a storage error.
pub type Cause = Box<dyn Error + Send + Sync>;

/// A read failed. Reads have no `Unknown`: the compiler keeps I7 out of the read paths.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The storage did not answer. Try again.
    #[error("the storage did not answer: {0}")]
    Unavailable(#[source] Cause),
    /// Credentials, schema or configuration are wrong. Retrying is pointless until the operator corrects
    /// them. It says nothing about the record: no other candidate can have claimed it by that.
    #[error("the storage refused for good: {0}")]
    Fatal(#[source] Cause),
    /// The storage was deleted, replaced or restored since it was opened. **Another process may lead
    /// already** in the new one, so a leader has lost its leadership at once.
    #[error("the storage was replaced: {0}")]
    Replaced(#[source] Cause),
}

/// A write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Not applied, and never will be. Try again.
    #[error("not applied: {0}")]
    NotApplied(#[source] Cause),
    /// May have been applied, or may still be. A linearizable read-back settles it. So does a later write of
    /// the same leader, whether it succeeds or is refused (I7).
    #[error("unknown whether applied: {0}")]
    Unknown(#[source] Cause),
    /// Not applied. Retrying is pointless until the operator corrects credentials, schema or configuration.
    /// It says nothing about the record: no other candidate can have claimed it by that.
    #[error("refused for good: {0}")]
    Fatal(#[source] Cause),
    /// The storage was deleted, replaced or restored since it was opened. Other processes don't see the
    /// write, and **another one may lead already**, so a leader has lost its leadership at once.
    #[error("the storage was replaced: {0}")]
    Replaced(#[source] Cause),
}
