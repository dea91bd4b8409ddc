//! Why a database folder can't be opened, each with the way out.

use std::{io, path::PathBuf};

/// Why a database folder could not be opened. Nothing that was there has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is empty.
    #[error("no path to a database folder")]
    NoPath,
    /// The folder above is missing: it may be a mistake in the path, so it is not created.
    #[error("there is no folder {}: create it (mkdir -p), or mend the path", .0.display())]
    NoParent(PathBuf),
    /// There is something else than a folder.
    #[error("{} is not a folder: name the folder of the database", .0.display())]
    NotAFolder(PathBuf),
    /// The folder is used by another program, or is a sled database of one.
    #[error("{} has something else in it: name a folder that is empty or does not exist yet", .0.display())]
    OfSomethingElse(PathBuf),
    /// Made by another version of this driver.
    #[error("{} was made by another version (format {found}): use that version", .path.display())]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// Another process has it.
    #[error(
        "{} is held by another process, and only one at a time can have it: end that one, or let them share a file \
         (`sqlite:elections.db`)", .0.display()
    )]
    Held(PathBuf),
    /// A database that is broken.
    #[error("{} is damaged: restore it from a backup ({cause})", .path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// What sled says.
        cause: ::sled::Error,
    },
    /// The system refused to tell, to create or to open.
    #[error("{} can't be opened: {cause}", .path.display())]
    System {
        /// The folder, or a file in it.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// What opening wrote could not be put on the disk.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sync {
        /// The folder.
        path: PathBuf,
        /// What went wrong.
        cause: String,
    },
    /// Anything else that sled says.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sled {
        /// The folder.
        path: PathBuf,
        /// What sled says.
        cause: ::sled::Error,
    },
    /// The process is out of threads.
    #[error("the thread that would own the database could not be started: {0}")]
    Thread(#[source] io::Error),
    /// The thread panicked while it opened the database.
    #[error("the thread that opened the database ended before it had done so")]
    ThreadEnded,
}

impl OpenError {
    pub(super) fn of_sled(path: PathBuf, cause: ::sled::Error) -> Self {
        match cause {
            ::sled::Error::Io(cause) => Self::System { path, cause },
            cause @ ::sled::Error::Corruption { .. } => Self::Damaged { path, cause },
            cause => Self::Sled { path, cause },
        }
    }
}
