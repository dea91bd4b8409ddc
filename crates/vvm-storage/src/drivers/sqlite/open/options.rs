//! [`OpenOptions`]: what the URL says beside the path.

/// How a database file may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpenOptions {
    allows_overlay: bool,
}

impl OpenOptions {
    /// Refuses every file system on which candidates may not share the file.
    pub const fn new() -> Self {
        Self { allows_overlay: false }
    }

    /// Accepts a file on overlayfs: the caller knows that all candidates see this overlay.
    #[must_use]
    pub const fn allow_overlay(mut self) -> Self {
        self.allows_overlay = true;
        self
    }

    pub(super) fn allows_overlay(self) -> bool {
        self.allows_overlay
    }
}
