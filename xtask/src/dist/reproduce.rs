//! `cargo xtask dist --reproduce`: whether a second build, from another folder, has the same bytes.

use super::{
    error::DistError,
    file::File,
    packages::{self, Made},
    source::Source,
    sums::sha256,
};

/// Builds again and compares every file.
///
/// # Errors
/// It does not build, or a file differs.
pub(super) fn compare(source: &Source, made: &Made) -> Result<(), DistError> {
    let folder = tempfile::Builder::new().prefix("vvm-second-build-").tempdir()?;
    let copy = source.copy_to(folder.path())?;
    let second = packages::make(&copy)?;
    let differing = differing(&made.files, &second.files);
    if differing.is_empty() {
        let folders = (source.root.display(), copy.root.display());
        println!("the same {} files from {} and {}", made.files.len(), folders.0, folders.1);
        return Ok(());
    }
    Err(DistError::Differs(differing.join(", ")))
}

/// Returns the files that are not in both, or not the same.
fn differing(first: &[File], second: &[File]) -> Vec<String> {
    let name = |file: &File| format!("{} {}", file.path, sha256(&file.bytes));
    let lacks = |files: &[File], one: &File| !files.iter().any(|other| name(other) == name(one));
    let of_first = first.iter().filter(|file| lacks(second, file));
    let of_second = second.iter().filter(|file| lacks(first, file));
    of_first.chain(of_second).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_differs_or_is_missing_is_named() {
        let files = |last: &str| vec![File::new("a", "same"), File::new("b", last)];
        assert_eq!(differing(&files("1"), &files("1")), [""; 0]);
        assert_eq!(differing(&files("1"), &files("2")).len(), 2);
        assert_eq!(differing(&files("1")[..1], &files("1")).len(), 1);
    }
}
