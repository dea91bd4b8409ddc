//! A file of an archive.

use std::collections::BTreeSet;

/// A file with its path, relative to the archive's root.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) is_program: bool,
    pub(super) bytes: Vec<u8>,
}

impl File {
    pub(super) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), is_program: false, bytes: bytes.into() }
    }

    pub(super) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { is_program: true, ..Self::new(path, bytes) }
    }

    pub(super) fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }

    /// Returns the same file below a folder.
    pub(super) fn below(mut self, folder: &str) -> Self {
        self.path = format!("{folder}/{}", self.path);
        self
    }
}

/// Returns the folders of these files, each behind those that contain it.
pub(super) fn folders(files: &[File]) -> BTreeSet<&str> {
    let of = |file: &'_ File| file.path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
    files.iter().flat_map(|file| of(file).into_iter().map(|at| &file.path[..at])).collect()
}
