//! [`Plan`]: the files to copy.

use crate::progress::Digest;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The files below a folder, in the order in which they are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Sorted by name, so that every process finds the same order.
    pub files: Vec<File>,
}

/// A file to copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Relative to the folder.
    pub name: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
}

impl Plan {
    /// Returns the files below `folder`, without links and special files.
    ///
    /// # Errors
    /// Fails if the folder can't be read.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(inside) = folders.pop() {
            for entry in fs::read_dir(&inside)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    let name = entry.path().strip_prefix(folder).map_err(io::Error::other)?.to_path_buf();
                    files.push(File { name, bytes: entry.metadata()?.len() });
                }
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { files })
    }

    /// Returns the sum of all lengths.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns a digest of names and lengths. A copy must not continue with another plan.
    pub fn digest(&self) -> Digest {
        self.files.iter().fold(Digest::default(), |digest, file| {
            digest.with(file.name.as_os_str().as_encoded_bytes()).with(&file.bytes.to_be_bytes())
        })
    }
}
