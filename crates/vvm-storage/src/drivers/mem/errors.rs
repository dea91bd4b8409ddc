//! The one thing that can go wrong in memory: calling a closed handle.

/// The handle was closed; the data stands as it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this handle of the storage in memory is closed: open another one")]
pub(super) struct Closed;
