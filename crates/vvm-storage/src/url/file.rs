//! What follows `sqlite:`: a path, and options behind a `?`. It is taken apart without the driver.

use crate::drivers::options::options;

/// A database file, and how it may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct File<'url> {
    pub(super) path: &'url str,
    /// `allow=overlay`: all candidates see the overlay that the file is on.
    pub(super) allows_overlay: bool,
}

impl<'url> File<'url> {
    /// Takes it apart.
    ///
    /// # Errors
    /// What is wrong with it, and how to write it.
    pub(super) fn parse(place: &'url str) -> Result<Self, String> {
        let (path, text) = place.split_once('?').unwrap_or((place, ""));
        if path.is_empty() {
            return Err("the path is missing: write `sqlite:elections.db`".into());
        }
        if path == ":memory:" {
            return Err("for a storage in memory write `mem:`".into());
        }
        if path.starts_with("//") {
            return Err(
                "there is no host in it: write `sqlite:elections.db` or `sqlite:/var/lib/elections.db`"
                    .into(),
            );
        }
        let mut allows_overlay = false;
        for option in options(text) {
            match option? {
                ("allow", "overlay") => allows_overlay = true,
                ("allow", other) => {
                    return Err(format!("`{other}` can't be allowed: the only value is allow=overlay"));
                }
                (name, _) => {
                    return Err(format!(
                        "there is no option `{name}`; there is allow (a path can't contain a `?`)"
                    ));
                }
            }
        }
        Ok(Self { path, allows_overlay })
    }
}

#[cfg(feature = "sqlite")]
impl File<'_> {
    /// As the driver takes them.
    pub(super) fn options(self) -> crate::sqlite::OpenOptions {
        let options = crate::sqlite::OpenOptions::new();
        if self.allows_overlay { options.allow_overlay() } else { options }
    }
}
