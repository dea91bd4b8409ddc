//! `cargo xtask sim --broken`: whether the simulation and the tests find bugs. Each variant is the real code with
//! a bug planted; a variant that survives is a hole. [`variants`] has the bugs.
//!
//! The broken copy of the tree is in the target folder; the tree itself is never touched. It has all bugs, and
//! an environment variable names the one that is at work: one build serves all variants. Without the variable
//! the copy is as good as the tree, and has to pass.

mod variants;

use crate::{
    ci::{limit, needs::scratch_variable},
    workspace::{Workspace, cargo},
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};
use variants::{FoundBy, VARIANTS, Variant};

/// Enough for every variant by a wide margin; the count that each took is printed.
const SEEDS: &str = "2000";

/// How many worlds of the copy have to pass without a bug.
const SOUND_SEEDS: &str = "1000";

/// Names the variant that is at work.
const VARIABLE: &str = "VVM_BROKEN";

/// How long one run may take: a bug may also let a test hang, and then it is found.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Why a variant could not be judged.
#[derive(Debug, thiserror::Error)]
enum BrokenError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("`{program}` could not be run: {cause}")]
    Start { program: &'static str, cause: io::Error },
    #[error(
        "{package} has these lines {found} times, not once: bring the variant `{variant}` up to date\n{lines}"
    )]
    Stale { package: &'static str, found: usize, variant: &'static str, lines: &'static str },
    #[error("the broken tree does not build:\n{0}")]
    Build(String),
    #[error("this machine can't run its test")]
    LeftOut,
    #[error("it fails without a bug:\n{0}")]
    Unsound(String),
}

/// Runs every variant whose name contains one of `names`, or all. Returns whether each was caught, and the copy
/// without a bug passed.
pub(crate) fn run(names: &[OsString]) -> bool {
    match run_chosen(names) {
        Ok(all_caught) => all_caught,
        Err(error) => {
            eprintln!("sim --broken: {error}");
            false
        }
    }
}

fn run_chosen(names: &[OsString]) -> Result<bool, Box<dyn std::error::Error>> {
    let copy = Copy { folder: Workspace::read()?.root.join("target/broken") };
    copy.plant(&Workspace::read()?.root)?;
    copy.build()?;
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    let is_chosen = |variant: &&Variant| {
        names.is_empty() || names.iter().any(|name| variant.name.contains(name.as_ref()))
    };
    let chosen: Vec<&Variant> = VARIANTS.iter().filter(is_chosen).collect();
    println!("without a bug: {}", copy.simulate_soundly()?);
    let (mut caught, mut left_out, mut seeds) = (0, 0, Vec::new());
    for variant in &chosen {
        match copy.judge(variant) {
            Ok(Some(found)) => {
                println!("caught    {}: {}", variant.name, found.by);
                caught += 1;
                seeds.extend(found.seed);
            }
            Ok(None) => println!("SURVIVED  {}", variant.name),
            Err(error @ BrokenError::LeftOut) => {
                println!("LEFT OUT  {}: {error}", variant.name);
                left_out += 1;
            }
            Err(error) => println!("FAILED    {}: {error}", variant.name),
        }
    }
    let worst = seeds.iter().max().map(|seed| format!(", the last one of a world by seed {seed}"));
    println!("{caught} of {} broken variants caught{}", chosen.len(), worst.unwrap_or_default());
    Ok(!chosen.is_empty() && caught + left_out == chosen.len())
}

/// What found a variant.
struct Found {
    /// The first violation, or the test.
    by: String,
    seed: Option<u64>,
}

/// The tree with all bugs in it.
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Copies the tree at `root`, and plants every bug.
    fn plant(&self, root: &Path) -> Result<(), BrokenError> {
        let sound = list(root)?;
        let mut planted: Vec<(PathBuf, String)> = Vec::new();
        for variant in VARIANTS {
            for change in variant.changes {
                let stale = |found| BrokenError::Stale {
                    package: change.package,
                    found,
                    variant: variant.name,
                    lines: change.good,
                };
                let of_package = sound.iter().filter(|file| {
                    file.starts_with(Path::new(change.package).join("src"))
                        && file.extension().is_some_and(|extension| extension == "rs")
                });
                let mut found = Vec::new();
                for file in of_package {
                    let known = planted.iter().position(|(there, _)| there == file);
                    let text = match known {
                        Some(index) => planted[index].1.clone(),
                        None => read(&root.join(file))?,
                    };
                    let count = text.matches(change.good).count();
                    found.extend(std::iter::repeat_n((known, file, text), count));
                }
                let [(known, file, text)] = &found[..] else { return Err(stale(found.len())) };
                let broken = change.broken.replace("BROKEN", &condition(variant.name));
                let text = text.replace(change.good, &broken);
                match known {
                    Some(index) => planted[*index].1 = text,
                    None => planted.push(((*file).clone(), text)),
                }
            }
        }
        let mut kept = BTreeSet::new();
        for file in sound {
            let to = self.tree().join(&file);
            let content = match planted.iter().find(|(there, _)| *there == file) {
                Some((_, text)) => text.clone().into_bytes(),
                // The index may have a file that was deleted.
                None => match fs::read(root.join(&file)) {
                    Ok(content) => content,
                    Err(_) => continue,
                },
            };
            write(&to, &content)?;
            kept.insert(to);
        }
        remove_others(&self.tree(), &kept)
    }

    /// Returns a cargo command that builds with the profile of all variants.
    fn cargo(&self, verb: &str) -> Command {
        let mut command = cargo();
        command.args([verb, "--quiet", "--locked", "--profile", "broken", "--target-dir"]);
        command.arg(self.folder.join("target")).current_dir(self.tree());
        command.envs(scratch_variable());
        command
    }

    fn build(&self) -> Result<(), BrokenError> {
        let built = output("cargo", self.cargo("build").args(["--package", "simulation"]))?;
        if built.status.success() { Ok(()) } else { Err(BrokenError::Build(said(&built.stderr))) }
    }

    fn simulation(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("target/broken/simulation"));
        command.args(arguments);
        command
    }

    /// Runs the worlds that have to pass, and returns what the simulation said of them.
    fn simulate_soundly(&self) -> Result<String, BrokenError> {
        let ran = output("simulation", &mut self.simulation(&["--seeds", SOUND_SEEDS]))?;
        let text = said(&ran.stdout);
        if ran.status.success() {
            Ok(text.lines().last().unwrap_or_default().to_owned())
        } else {
            Err(BrokenError::Unsound(text))
        }
    }

    /// Lets one bug work, and returns what found it.
    fn judge(&self, variant: &Variant) -> Result<Option<Found>, BrokenError> {
        match variant.found_by {
            FoundBy::Simulation => {
                let mut simulation = self.simulation(&["--seeds", SEEDS, "--fail-fast"]);
                let ran = output("simulation", simulation.env(VARIABLE, variant.name))?;
                Ok(said(&ran.stdout).lines().find_map(violation))
            }
            FoundBy::Test(package, file, test) => {
                let command = || {
                    let mut command = self.cargo("test");
                    command.args(["--package", package, "--all-features"]);
                    match file {
                        Some(file) => command.args(["--test", file]),
                        None => command.arg("--lib"),
                    };
                    if !test.is_empty() {
                        command.args(["--", "--exact", test]);
                    }
                    command
                };
                let sound = output("cargo", &mut command())?;
                let text = said(&sound.stdout);
                if text.contains("left out, since") {
                    return Err(BrokenError::LeftOut);
                }
                if !sound.status.success() || !test.is_empty() && !text.contains("1 passed") {
                    return Err(BrokenError::Unsound(text + &said(&sound.stderr)));
                }
                let broken = output("cargo", command().env(VARIABLE, variant.name));
                let found = match &broken {
                    Ok(broken) => !broken.status.success(),
                    Err(BrokenError::Start { cause, .. }) => cause.kind() == io::ErrorKind::TimedOut,
                    Err(_) => false,
                };
                Ok(found.then(|| Found {
                    by: format!("tests of {package}, {} {test}", file.unwrap_or("lib")),
                    seed: None,
                }))
            }
        }
    }
}

/// A condition that holds in the runs of the variant `name` alone.
fn condition(name: &str) -> String {
    format!(
        "({{ static ON: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
         std::env::var_os({VARIABLE:?}).is_some_and(|name| name == {name:?})); *ON }})"
    )
}

fn output(program: &'static str, command: &mut Command) -> Result<Output, BrokenError> {
    limit::output(command, LIMIT).map_err(|cause| BrokenError::Start { program, cause })
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn violation(line: &str) -> Option<Found> {
    let (seed, _) = line.strip_prefix("seed ")?.split_once(" violates ")?;
    Some(Found { seed: Some(seed.parse().ok()?), by: line.to_owned() })
}

/// Returns the files below `root` that git knows or would know.
fn list(root: &Path) -> Result<Vec<PathBuf>, BrokenError> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = output("git", &mut git)?;
    let names = said(&listed.stdout);
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
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

/// A file that stays the same keeps its time, and is not built anew.
fn write(path: &Path, content: &[u8]) -> Result<(), BrokenError> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let failed = |cause| BrokenError::File { path: path.to_path_buf(), cause };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, content).map_err(failed)
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
        let found = violation("seed 17 violates I1: two leaders").unwrap();
        assert_eq!((found.seed, found.by.as_str()), (Some(17), "seed 17 violates I1: two leaders"));
        assert!(violation("17 seeds, 0 violations").is_none());
    }

    #[test]
    fn every_bug_waits_for_its_variable() {
        for variant in VARIANTS {
            assert!(
                variant.changes.iter().all(|change| change.broken.contains("BROKEN")),
                "{}",
                variant.name
            );
        }
    }
}
