//! [`OpenError`]: why a database folder can't be opened.

use std::{io, path::PathBuf};

/// Why a database folder could not be opened. Existing files were not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is empty.
    #[error("no path to a database folder")]
    NoPath,
    /// The folder above is missing. It is not created, since the path may be wrong.
    #[error("there is no folder {}: create it (mkdir -p), or correct the path", .0.display())]
    NoParent(PathBuf),
    /// The path leads to something else than a folder.
    #[error("{} is not a folder: name the folder of the database", .0.display())]
    NotAFolder(PathBuf),
    /// The folder is used by another program, or is a sled database of one.
    #[error("{} has files of another program: name a folder that is empty or does not exist", .0.display())]
    OfSomethingElse(PathBuf),
    /// Another version of this driver created it.
    #[error("{} has format {found}, and this version knows format {known}: use the other \
        version", .path.display())]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: String,
        /// The format that this driver knows.
        known: String,
    },
    /// Another process uses it.
    #[error(
        "another process uses {}, and only one at a time can: end it, or let them share a file \
         (`sqlite:elections.db`)", .0.display()
    )]
    Held(PathBuf),
    /// The database is damaged.
    #[error("{} is damaged: restore it from a backup ({cause})", .path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// The error of sled.
        cause: ::sled::Error,
    },
    /// The system refused access.
    #[error("{} can't be opened: {cause}", .path.display())]
    System {
        /// The folder, or a file in it.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The changes of opening could not be synced.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sync {
        /// The folder.
        path: PathBuf,
        /// The error.
        cause: String,
    },
    /// Any other error of sled.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sled {
        /// The folder.
        path: PathBuf,
        /// The error of sled.
        cause: ::sled::Error,
    },
    /// The process is out of threads.
    #[error("the system refuses a thread for the database: {0}: allow more (ulimit -u, TasksMax=, pids.max)")]
    Thread(#[source] io::Error),
    /// The thread panicked while it opened the database.
    #[error("the thread that opened the database panicked")]
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
