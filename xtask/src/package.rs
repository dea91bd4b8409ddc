//! `cargo xtask package`: packages every crate below `crates/`, and builds each one from its package.
//!
//! Cargo resolves the crates from each other's packages, so a missing file or version fails here and not at
//! the release. Packages below `evidence/` and `examples/` are not published.

use crate::workspace::{Workspace, cargo};

/// Returns whether every package builds.
pub(crate) fn run() -> bool {
    let workspace = match Workspace::read() {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("package: {error}");
            return false;
        }
    };
    let published = workspace.packages.iter().filter(|package| package.folder().starts_with("crates"));
    let mut package = cargo();
    package.args(["package", "--locked"]).current_dir(&workspace.root);
    published.for_each(|one| {
        package.args(["--package", &one.name]);
    });
    match package.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("package: cargo could not be started: {error}");
            false
        }
    }
}
