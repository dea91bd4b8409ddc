//! What a database file says of itself.

use super::{
    super::{errors::Trouble, open::FileSystem},
    Rows,
};
use crate::Description;
use std::path::Path;

/// What `PRAGMA synchronous` says by numbers.
const SYNCHRONOUS: [&str; 4] = ["off", "normal", "full", "extra"];

impl Rows<'_> {
    /// Library, journal, syncs, and the file system under it.
    pub(in super::super) fn describe(&self) -> Result<Description, Trouble> {
        let journal: String = self.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = self.connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        let synchronous = usize::try_from(synchronous).ok().and_then(|number| SYNCHRONOUS.get(number));
        let description = Description::of(format!("SQLite {}", rusqlite::version()))
            .with("journal mode", journal)
            .with("synchronous", synchronous.unwrap_or(&"unknown"));
        let file_system = self.connection.path().and_then(|path| FileSystem::of(Path::new(path)).ok());
        Ok(match file_system {
            Some(file_system) => {
                // Where one number is that of several, one of them.
                let name = file_system.to_string().replace(", ", "/");
                on(file_system, description.with("file system", name))
            }
            None => description,
        })
    }
}

fn on(file_system: FileSystem, description: Description) -> Description {
    if file_system.is_in_memory() {
        description.concerned(format!(
            "the file is on {file_system}, in memory: the machine's next start forgets it, and its epochs. Keep it on a disk"
        ))
    } else if file_system.is_layered() {
        description.concerned(
            "the file is on overlayfs: if that is a container's own layer, it is gone with the container, and no other one \
             sees it. Keep it on a volume",
        )
    } else {
        description
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_will_be_forgotten_is_a_concern() {
        let concerns = |file_system| on(file_system, Description::of("SQLite")).concerns;
        assert!(concerns(FileSystem::TMPFS)[0].contains("Keep it on a disk"));
        assert!(concerns(FileSystem::OVERLAY)[0].contains("Keep it on a volume"));
        assert!(concerns(FileSystem::EXT4).is_empty());
    }
}
