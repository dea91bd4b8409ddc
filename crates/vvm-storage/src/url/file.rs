//! A path after `sqlite:` or `sled:`, and the options of `sqlite:`. Parsed without the drivers.

use crate::drivers::options::options;

/// A database file, and how to open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct File<'url> {
    pub(super) path: &'url str,
    /// `allow=overlay`: all candidates see the overlay that the file is on.
    pub(super) allows_overlay: bool,
    /// `mode=0660`: the file is created for the group, too.
    pub(super) for_group: bool,
}

/// Returns the path, without the two slashes that may precede an absolute one. `None` if there is a host.
pub(super) fn without_slashes(place: &str) -> Option<&str> {
    match place.strip_prefix("//") {
        Some(path) => path.starts_with('/').then_some(path),
        None => Some(place),
    }
}

impl<'url> File<'url> {
    /// Parses the part of the URL after `sqlite:`.
    ///
    /// # Errors
    /// The mistake, and how to write it.
    pub(super) fn parse(place: &'url str) -> Result<Self, String> {
        let (path, text) = place.split_once('?').unwrap_or((place, ""));
        let path = without_slashes(path)
            .ok_or("a path has no host: write `sqlite:elections.db` or `sqlite:/var/lib/elections.db`")?;
        match path {
            "" => return Err("the path is missing: write `sqlite:elections.db`".into()),
            ":memory:" => return Err("for a storage in memory write `mem:`".into()),
            _ => {}
        }
        let mut file = Self { path, allows_overlay: false, for_group: false };
        for option in options(text) {
            match option? {
                ("allow", "overlay") => file.allows_overlay = true,
                ("allow", _) => return Err("only overlayfs can be allowed: write allow=overlay".into()),
                ("mode", "0600") => file.for_group = false,
                ("mode", "0660") => file.for_group = true,
                ("mode", _) => return Err("a mode is mode=0600 or mode=0660".into()),
                (name, _) => {
                    return Err(format!(
                        "there is no option `{name}`; there are allow and mode (a path can't contain a `?`)"
                    ));
                }
            }
        }
        Ok(file)
    }
}

#[cfg(feature = "sqlite")]
impl File<'_> {
    /// Returns the driver's options.
    pub(super) fn options(self) -> crate::sqlite::OpenOptions {
        let mut options = crate::sqlite::OpenOptions::new();
        if self.allows_overlay {
            options = options.allow_overlay();
        }
        if self.for_group { options.for_group() } else { options }
    }
}
