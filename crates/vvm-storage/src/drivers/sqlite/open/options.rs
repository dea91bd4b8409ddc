/// How to open a database file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpenOptions {
    /// Accept a file on overlayfs: the caller knows that all candidates see this overlay. Other file systems on
    /// which candidates may not share the file are refused.
    pub allow_overlay: bool,
    /// Create the file for its user and its group (0660), and not for its user alone (0600). Has no effect on a
    /// file that exists.
    pub for_group: bool,
}
