//! [`Tree`]: the files that git tracks or would track, and the packages of the workspace.

use super::rust_source::RustSource;
use crate::workspace::{Package, Workspace, WorkspaceError};
use std::{collections::BTreeSet, fs, io, process::Command};

/// The tree, read once.
#[derive(Debug)]
pub(super) struct Tree {
    files: Vec<File>,
    packages: Vec<Package>,
}

/// One file.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    /// Empty for a file that is not text.
    pub(super) text: String,
    /// The parsed file, if it is Rust.
    pub(super) rust: Option<RustSource>,
}

/// The tree could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("git could not be started: {0}. The list of files comes from `git ls-files`")]
    Git(#[source] io::Error),
    #[error("`git ls-files` failed: {0}. Run this in a git checkout")]
    Listing(String),
    #[error("{path} could not be read: {cause}")]
    File { path: String, cause: io::Error },
}

impl Tree {
    pub(super) fn read() -> Result<Self, TreeError> {
        let workspace = Workspace::read()?;
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&workspace.root)
            .output()
            .map_err(TreeError::Git)?;
        if !listing.status.success() {
            return Err(TreeError::Listing(String::from_utf8_lossy(&listing.stderr).trim().to_owned()));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|path| !path.is_empty()) {
            match fs::read(workspace.root.join(path)) {
                Ok(bytes) => files.push(File::new(path, String::from_utf8(bytes).unwrap_or_default())),
                // The file is deleted, but still in the index.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(TreeError::File { path: path.to_owned(), cause }),
            }
        }
        Ok(Self::new(files, workspace.packages))
    }

    fn new(mut files: Vec<File>, packages: Vec<Package>) -> Self {
        let test_modules: BTreeSet<String> = files
            .iter()
            .filter_map(|file| Some((file, file.rust.as_ref()?)))
            .flat_map(|(file, rust)| rust.test_modules().iter().map(|name| child_module(&file.path, name)))
            .collect();
        for file in &mut files {
            let is_test = lies_in_test_folder(&file.path)
                || test_modules.iter().any(|module| {
                    file.path
                        .strip_prefix(module.as_str())
                        .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
                });
            if let (true, Some(rust)) = (is_test, &mut file.rust) {
                rust.mark_all_as_test();
            }
        }
        Self { files, packages }
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Iterates over the Rust files, with their paths.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &RustSource)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.rust.as_ref()?)))
    }
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let rust = path.ends_with(".rs").then(|| RustSource::new(&text));
        Self { path: path.to_owned(), text, rust }
    }
}

/// Returns the path of `mod name;` in the file at `parent`, without the extension.
fn child_module(parent: &str, name: &str) -> String {
    let (folder, file) = parent.rsplit_once('/').unwrap_or(("", parent));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{name}"),
        other => format!("{folder}/{}/{name}", other.trim_end_matches(".rs")),
    }
}

/// Folders that cargo builds only for tests and measurements, and the package that only tests use.
fn lies_in_test_folder(path: &str) -> bool {
    path.starts_with("evidence/harness/") || path.split('/').any(|part| matches!(part, "tests" | "benches"))
}

#[cfg(test)]
impl Tree {
    /// A tree of these files and no packages.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::with_packages(files, Vec::new())
    }

    pub(super) fn with_packages(files: &[(&str, &str)], packages: Vec<Package>) -> Self {
        Self::new(files.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect(), packages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_test(tree: &Tree, wanted: &str) -> bool {
        tree.rust().any(|(path, rust)| path == wanted && rust.is_test(1))
    }

    #[test]
    fn files_of_a_test_module_are_tests() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod checks;\nmod work;\n"),
            ("crates/a/src/checks.rs", "fn check() {}\n"),
            ("crates/a/src/checks/deep.rs", "fn check() {}\n"),
            ("crates/a/src/work.rs", "#[cfg(test)] mod inner;\n"),
            ("crates/a/src/work/inner.rs", "fn check() {}\n"),
            ("crates/a/src/checkstand.rs", "fn work() {}\n"),
            ("crates/a/tests/whole.rs", "fn check() {}\n"),
        ]);
        assert!(is_test(&tree, "crates/a/src/checks.rs"));
        assert!(is_test(&tree, "crates/a/src/checks/deep.rs"));
        assert!(is_test(&tree, "crates/a/src/work/inner.rs"));
        assert!(is_test(&tree, "crates/a/tests/whole.rs"));
        assert!(!is_test(&tree, "crates/a/src/checkstand.rs"));
        assert!(!tree.rust().any(|(path, rust)| path == "crates/a/src/work.rs" && rust.is_test(2)));
    }
}
