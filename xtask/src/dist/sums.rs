//! SHA-256 sums, as `sha256sum --check` reads them.

use super::file::File;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_sorted_by_file() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let files = [File::new("b", "abc"), File::new("a", "")];
        assert_eq!(sums(&files), format!("{empty}  a\n{abc}  b\n"));
    }
}
