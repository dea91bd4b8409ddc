//! `cargo xtask sim --broken`: whether the simulation would notice. Each variant is the real code with one
//! line broken on purpose; a variant that survives is a hole in the simulation.
//!
//! What lives here: making a broken copy of the tree, running it, and judging what it said. Which lines are
//! broken stands in [`variants`]. The copies lie in the target folder; the tree itself is never touched.

mod variants;

use crate::workspace::{Workspace, cargo};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};
use variants::{VARIANTS, Variant};

/// Enough for every variant by a wide margin; the count that each took is printed.
const SEEDS: &str = "2000";

/// Why a variant could not be judged.
#[derive(Debug, thiserror::Error)]
enum BrokenError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("`{program}` could not be started: {cause}")]
    Start { program: &'static str, cause: io::Error },
    #[error("{file} has the line to break {found} times, not once: bring the variant up to date\n{line}")]
    Stale { file: &'static str, found: usize, line: &'static str },
    #[error("the broken tree does not build:\n{0}")]
    Build(String),
}

/// Runs every variant; whether each was caught.
pub(crate) fn run() -> bool {
    let workspace = match Workspace::read() {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("sim --broken: {error}");
            return false;
        }
    };
    let copy = workspace.root.join("target/broken");
    let mut caught = 0;
    for variant in VARIANTS {
        match judge(&workspace.root, &copy, variant) {
            Ok(Some(violation)) => {
                println!("caught    {}: {violation}", variant.name);
                caught += 1;
            }
            Ok(None) => println!("SURVIVED  {}: no violation in {SEEDS} seeds", variant.name),
            Err(error) => println!("FAILED    {}: {error}", variant.name),
        }
    }
    println!("{caught} of {} broken variants caught", VARIANTS.len());
    caught == VARIANTS.len()
}

/// The first violation that the simulation reports of the broken tree.
fn judge(root: &Path, copy: &Path, variant: &Variant) -> Result<Option<String>, BrokenError> {
    let tree = copy.join("tree");
    copy_tree(root, &tree)?;
    for change in variant.changes {
        let path = tree.join(change.file);
        let good = read(&path)?;
        let found = good.matches(change.good).count();
        if found != 1 {
            return Err(BrokenError::Stale { file: change.file, found, line: change.good });
        }
        write(&path, &good.replace(change.good, change.broken))?;
    }
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--package", "simulation", "--target-dir"]);
    build.arg(copy.join("target")).current_dir(&tree);
    let built = build.output().map_err(|cause| BrokenError::Start { program: "cargo", cause })?;
    if !built.status.success() {
        return Err(BrokenError::Build(String::from_utf8_lossy(&built.stderr).into_owned()));
    }
    let ran = Command::new(copy.join("target/release/simulation"))
        .args(["--seeds", SEEDS, "--fail-fast"])
        .output()
        .map_err(|cause| BrokenError::Start { program: "simulation", cause })?;
    let said = String::from_utf8_lossy(&ran.stdout);
    Ok(said.lines().find(|line| line.contains(" violates ")).map(str::to_owned))
}

/// The files that git knows or would know, those that differ: what stays the same keeps its time and is not
/// built anew.
fn copy_tree(root: &Path, tree: &Path) -> Result<(), BrokenError> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|cause| BrokenError::Start { program: "git", cause })?;
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)
                .map_err(|cause| BrokenError::File { path: folder.to_path_buf(), cause })?;
        }
        fs::write(&to, content).map_err(|cause| BrokenError::File { path: to, cause })?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, BrokenError> {
    fs::read_to_string(path).map_err(|cause| BrokenError::File { path: path.to_path_buf(), cause })
}

fn write(path: &Path, content: &str) -> Result<(), BrokenError> {
    fs::write(path, content).map_err(|cause| BrokenError::File { path: path.to_path_buf(), cause })
}
