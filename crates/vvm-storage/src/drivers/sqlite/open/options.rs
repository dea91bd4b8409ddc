//! [`OpenOptions`]: the options of a database file's URL.

/// How to open a database file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpenOptions {
    allows_overlay: bool,
    for_group: bool,
}

impl OpenOptions {
    /// Refuses every file system on which candidates may not share the file. Creates the file for its user
    /// alone (0600).
    pub const fn new() -> Self {
        Self { allows_overlay: false, for_group: false }
    }

    /// Accepts a file on overlayfs: the caller knows that all candidates see this overlay.
    #[must_use]
    pub const fn allow_overlay(mut self) -> Self {
        self.allows_overlay = true;
        self
    }

    /// Creates the file for its user and its group (0660). Has no effect on a file that exists.
    #[must_use]
    pub const fn for_group(mut self) -> Self {
        self.for_group = true;
        self
    }

    pub(super) fn allows_overlay(self) -> bool {
        self.allows_overlay
    }

    /// Returns the permissions of a file that is created.
    pub(super) fn mode(self) -> u32 {
        if self.for_group { 0o660 } else { 0o600 }
    }
}
