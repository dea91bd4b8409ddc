//! Archives whose bytes follow from their files alone: sorted, of user 0, with the time of the commit.

use super::draft::DistError;
use data_encoding::HEXLOWER;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    io::{self, Write as _},
};
use tar::{Builder, EntryType, Header};

/// Returns a tar archive of these files and their folders.
///
/// # Errors
/// A path has more than 100 bytes, which no file of ours has.
pub(super) fn tar(files: &[File], time: u64) -> Result<Vec<u8>, DistError> {
    let mut archive = Builder::new(Vec::new());
    for folder in folders(files) {
        append(&mut archive, EntryType::Directory, &format!("{folder}/"), 0o755, time, &[])?;
    }
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|left, right| left.path.cmp(&right.path));
    for file in sorted {
        append(&mut archive, EntryType::Regular, &file.path, file.mode(), time, &file.bytes)?;
    }
    Ok(archive.into_inner()?)
}

fn append(
    archive: &mut Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    time: u64,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_cksum();
    archive.append(&header, bytes)
}

/// Compresses, without a time and a name in the result.
///
/// # Errors
/// None in practice: it writes to memory.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, DistError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Returns the sum of these bytes, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Returns the content of `SHA256SUMS` for these files.
pub(super) fn sums(files: &[File]) -> String {
    let mut lines: Vec<_> =
        files.iter().map(|file| (&file.path, format!("{}  {}\n", sha256(&file.bytes), file.path))).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use tar::Archive;

    fn files() -> Vec<File> {
        vec![File::program("b/vvm", "program"), File::new("b/a/notes", "text"), File::new("c", "")]
    }

    #[test]
    fn order_of_files_changes_nothing() {
        let reversed: Vec<File> = files().into_iter().rev().collect();
        assert_eq!(tar(&files(), 7).unwrap(), tar(&reversed, 7).unwrap());
        assert_eq!(gzip(b"text").unwrap(), gzip(b"text").unwrap());
        assert_eq!(gzip(b"text").unwrap()[4..8], [0; 4], "no time in the header");
    }

    #[test]
    fn every_entry_has_the_given_time_and_no_owner_of_this_machine() {
        let bytes = tar(&files(), 1_700_000_000).unwrap();
        let mut archive = Archive::new(&*bytes);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            found.push((path, header.mode().unwrap()));
        }
        let expected = [("b/", 0o755), ("b/a/", 0o755), ("b/a/notes", 0o644), ("b/vvm", 0o755), ("c", 0o644)];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn sums_are_sorted_by_file() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let files = [File::new("b", "abc"), File::new("a", "")];
        assert_eq!(sums(&files), format!("{empty}  a\n{abc}  b\n"));
    }
}
