//! [`OpenError`]: why a storage could not be opened or created, whichever driver it has.

use crate::storage_url::StorageUrl;

/// Why a storage could not be opened or created. What was there is unchanged, and the message says what to do.
/// It contains no secret of the URL.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct OpenError {
    kind: OpenErrorKind,
    text: String,
}

/// What an [`OpenError`] means to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// The URL is wrong, for this build at least. No storage was contacted.
    Misuse,
    /// Nothing was created at this place, or not all of it: [`init_storage`](crate::init_storage) does.
    Missing,
    /// The obstacle may pass by itself, so that trying again can help.
    Passing,
    /// The system refused a thread or a descriptor, and not the storage.
    System,
    /// An operator has to act.
    Refused,
}

#[allow(dead_code, reason = "used by the drivers of this build")]
impl OpenError {
    pub(crate) fn new(kind: OpenErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Missing, text)
    }

    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Passing, text)
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Refused, text)
    }

    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self::new(OpenErrorKind::Misuse, text)
    }

    /// The URL makes no sense: `why`, and how to write it.
    pub(crate) fn of_url(url: &str, why: impl std::fmt::Display) -> Self {
        Self::misuse(format!("`{}`: {why}", StorageUrl::from(url)))
    }

    /// Returns what it means to the caller.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    /// Whether the URL is wrong, for this build at least. No storage was contacted.
    pub fn is_misuse(&self) -> bool {
        self.kind == OpenErrorKind::Misuse
    }

    /// Whether the system refused a thread or a descriptor, and not the storage.
    pub fn is_of_system(&self) -> bool {
        self.kind == OpenErrorKind::System
    }

    /// Whether the obstacle may pass by itself, so that trying again can help.
    pub fn is_passing(&self) -> bool {
        self.kind == OpenErrorKind::Passing
    }
}
