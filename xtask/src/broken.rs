//! `cargo xtask sim --broken`: whether the simulation finds bugs. Each variant is the real code with a bug
//! planted; a variant that survives is a hole in the simulation. [`variants`] has the bugs.
//!
//! The broken copy of the tree is in the target folder; the tree itself is never touched.

mod variants;

use crate::workspace::{Workspace, cargo};
use std::{
    collections::BTreeSet,
    ffi::OsString,
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

/// Runs every variant whose name contains one of `names`, or all. Returns whether each was caught.
pub(crate) fn run(names: &[OsString]) -> bool {
    let workspace = match Workspace::read() {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("sim --broken: {error}");
            return false;
        }
    };
    let copy = workspace.root.join("target/broken");
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    let is_chosen = |variant: &&Variant| {
        names.is_empty() || names.iter().any(|name| variant.name.contains(name.as_ref()))
    };
    let chosen: Vec<&Variant> = VARIANTS.iter().filter(is_chosen).collect();
    let mut caught = Vec::new();
    for variant in &chosen {
        match judge(&workspace.root, &copy, variant) {
            Ok(Some(Caught { seed, violation })) => {
                println!("caught    {}: {violation}", variant.name);
                caught.push(seed);
            }
            Ok(None) => println!("SURVIVED  {}: no violation in {SEEDS} seeds", variant.name),
            Err(error) => println!("FAILED    {}: {error}", variant.name),
        }
    }
    let worst = caught.iter().max().map(|seed| format!(", the last one by seed {seed}")).unwrap_or_default();
    println!("{} of {} broken variants caught{worst}", caught.len(), chosen.len());
    !chosen.is_empty() && caught.len() == chosen.len()
}

/// The first violation of a variant.
struct Caught {
    seed: u64,
    violation: String,
}

/// The first violation that the simulation reports of the broken tree.
fn judge(root: &Path, copy: &Path, variant: &Variant) -> Result<Option<Caught>, BrokenError> {
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
    build.args(["build", "--quiet", "--profile", "broken", "--package", "simulation", "--target-dir"]);
    build.arg(copy.join("target")).current_dir(&tree);
    let built = build.output().map_err(|cause| BrokenError::Start { program: "cargo", cause })?;
    if !built.status.success() {
        return Err(BrokenError::Build(String::from_utf8_lossy(&built.stderr).into_owned()));
    }
    let ran = Command::new(copy.join("target/broken/simulation"))
        .args(["--seeds", SEEDS, "--fail-fast"])
        .output()
        .map_err(|cause| BrokenError::Start { program: "simulation", cause })?;
    let said = String::from_utf8_lossy(&ran.stdout);
    Ok(said.lines().find_map(caught))
}

fn caught(line: &str) -> Option<Caught> {
    let (seed, _) = line.strip_prefix("seed ")?.split_once(" violates ")?;
    Some(Caught { seed: seed.parse().ok()?, violation: line.to_owned() })
}

/// Makes `tree` have the files that git knows or would know, and no others. A file that stays the same keeps
/// its time and is not built anew.
fn copy_tree(root: &Path, tree: &Path) -> Result<(), BrokenError> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|cause| BrokenError::Start { program: "git", cause })?;
    let mut kept = BTreeSet::new();
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        // The index may have a file that was deleted.
        let Ok(content) = fs::read(&from) else { continue };
        kept.insert(to.clone());
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)
                .map_err(|cause| BrokenError::File { path: folder.to_path_buf(), cause })?;
        }
        fs::write(&to, content).map_err(|cause| BrokenError::File { path: to, cause })?;
    }
    remove_others(tree, &kept)
}

/// Removes the files below `folder` that are not in `kept`: a module that was deleted must not be found.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), BrokenError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| BrokenError::File { path, cause }
    };
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let path = entry.path();
        if entry.file_type().map_err(failed(&path))?.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, BrokenError> {
    fs::read_to_string(path).map_err(|cause| BrokenError::File { path: path.to_path_buf(), cause })
}

fn write(path: &Path, content: &str) -> Result<(), BrokenError> {
    fs::write(path, content).map_err(|cause| BrokenError::File { path: path.to_path_buf(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_of_a_tree_loses_the_files_that_the_tree_has_lost() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("src/old")).unwrap();
        for name in ["src/kept.rs", "src/gone.rs", "src/old/gone.rs"] {
            fs::write(at(name), "").unwrap();
        }
        remove_others(folder.path(), &BTreeSet::from([at("src/kept.rs")])).unwrap();
        assert!(at("src/kept.rs").exists());
        assert!(!at("src/gone.rs").exists() && !at("src/old/gone.rs").exists());
    }

    #[test]
    fn first_violation_names_its_seed() {
        let found = caught("seed 17 violates I1: two leaders").unwrap();
        assert_eq!((found.seed, found.violation.as_str()), (17, "seed 17 violates I1: two leaders"));
        assert!(caught("17 seeds, 0 violations").is_none());
    }
}
