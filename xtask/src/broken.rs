//! `cargo xtask sim --broken`: whether the simulation, the check of all orders, the public suites and other tests find
//! bugs that neither a mutant nor a faulty storage shows. Each variant is the real code with a bug planted; one that
//! survives is a hole. [`variants()`] has the bugs. The broken copy of the tree is in the target folder; the tree
//! itself is never touched. It has all bugs, and an environment variable names the one that is at work: one build
//! serves all variants. Without the variable the copy is as good as the tree, and has to pass.

mod variants;

use crate::{
    limit,
    needs::scratch_variable,
    side_by_side::side_by_side,
    workspace::{self, Workspace, cargo},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};
use variants::{Test, Unreadable, Variant, variants};
use vvm_clock::SystemClock;

/// Enough for every variant by a wide margin; the count that each took is printed.
const SEEDS: &str = "10000";

/// How many worlds of the copy have to pass without a bug, and how many random paths of its check.
const SOUND_SEEDS: &str = "1000";
const SOUND_PATHS: &str = "2000";

const PROGRAMS: [&str; 2] = ["simulation", "check"];

const SUITES: Test = Test { package: "ielections", file: "suite", module: None };

/// Those that the tests need, and no driver of a server, which takes minutes to build.
const FEATURES: &str = "ielections/testing,vvm-containment/simulation,vvm-deadman/testing,vvm-storage/cells,\
    vvm-storage/sqlite,vvm-storage/testing";

const VARIABLE: &str = "VVM_BROKEN";

/// How long a run of the simulation or the check may take, and any run without a bug.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// A test with a bug hangs if it takes so many times as long as the longest one without, and at least so long.
const HANG_FACTOR: u32 = 10;
const SHORTEST_HANG: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("`{program}` could not be run: {cause}")]
    Start { program: &'static str, cause: io::Error },
    #[error(
        "{package} has these lines {found} times, not once: bring the variant `{variant}` up to date\n{lines}"
    )]
    Stale { package: &'static str, found: usize, variant: &'static str, lines: String },
    #[error(transparent)]
    List(#[from] Unreadable),
    #[error("the broken tree does not build:\n{0}")]
    Build(String),
    #[error("no case of a public suite is called `{0}`")]
    NoCase(&'static str),
    #[error("{package} has no one program for the test `{file}`")]
    NoTest { package: &'static str, file: &'static str },
    #[error("it fails without a bug:\n{0}")]
    Unsound(String),
}

/// Runs the variants with one of `names` in theirs, or all. Returns whether each was caught and the sound copy passed.
pub(crate) fn run(names: &[OsString]) -> bool {
    workspace::holds("sim --broken", run_chosen(names))
}

fn run_chosen(names: &[OsString]) -> Result<bool, Box<dyn std::error::Error>> {
    let workspace = Workspace::read()?;
    let mut variants = variants()?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let copy = BrokenTree { folder: workspace.root.join("target/broken") };
    copy.plant(&workspace.root, &variants)?;
    let tests = copy.build(&workspace, &variants)?;
    tests.check_cases(&variants)?;
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    variants
        .retain(|variant| names.is_empty() || names.iter().any(|name| variant.name.contains(name.as_ref())));
    let judges = Judge::all_of(&variants);
    let passed = side_by_side(&judges, processors, |judge| timed(|| copy.passes(&tests, *judge)));
    let mut hangs_after = SHORTEST_HANG;
    for (judge, (passed, took)) in judges.iter().zip(passed) {
        println!("without a bug: {judge}: {}, {:.1} s", passed?, took.as_secs_f64());
        if matches!(judge, Judge::Test(_)) {
            hangs_after = hangs_after.max(took * HANG_FACTOR);
        }
    }
    let mut caught = 0;
    let judge = |variant| timed(|| copy.judge(&tests, variant, hangs_after));
    let judged = side_by_side(&variants, processors, judge);
    for (variant, (judged, took)) in variants.iter().zip(judged) {
        match judged {
            Ok(Ok(found)) => {
                println!("caught    {}: {}, {:.1} s", variant.name, found.join("; "), took.as_secs_f64());
                caught += 1;
            }
            Ok(Err(blind)) => println!("SURVIVED  {}: {blind}", variant.name),
            Err(error) => println!("FAILED    {}: {error}", variant.name),
        }
    }
    println!("{caught} of {} broken variants caught", variants.len());
    Ok(!variants.is_empty() && caught == variants.len())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = SystemClock::read();
    let done = work();
    (done, SystemClock::read().since(began))
}

type Judged = Result<Result<Vec<String>, String>, BrokenError>;

#[derive(Clone, Copy)]
enum Judge {
    Simulation,
    Check,
    Test(Test),
}

impl Judge {
    fn all_of(variants: &[Variant]) -> Vec<Self> {
        let mut tests = vec![SUITES];
        for test in variants.iter().filter_map(|variant| variant.by_test) {
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
        [Self::Check, Self::Simulation].into_iter().chain(tests.into_iter().map(Self::Test)).collect()
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulation => out.write_str("simulation"),
            Self::Check => out.write_str("check"),
            Self::Test(Test { package, file, module }) => {
                write!(out, "tests of {package}, {file} {}", module.unwrap_or_default())
            }
        }
    }
}

struct BrokenTree {
    folder: PathBuf,
}

impl BrokenTree {
    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Copies the tree at `root`, and plants every bug.
    fn plant(&self, root: &Path, variants: &[Variant]) -> Result<(), BrokenError> {
        let sound = list(root)?;
        let mut planted: BTreeMap<PathBuf, String> = BTreeMap::new();
        for variant in variants {
            for change in &variant.changes {
                let mut found = Vec::new();
                let sources = Path::new(change.package).join("src");
                let is_rust = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "rs");
                for file in sound.iter().filter(|file| file.starts_with(&sources)).filter(is_rust) {
                    let text = match planted.get(file) {
                        Some(text) => text.clone(),
                        None => read(&root.join(file))?,
                    };
                    let count = text.matches(&change.good).count();
                    found.extend(std::iter::repeat_n((file, text), count));
                }
                let [(file, text)] = &found[..] else {
                    let (package, variant, lines) = (change.package, variant.name, change.good.clone());
                    return Err(BrokenError::Stale { package, found: found.len(), variant, lines });
                };
                let broken =
                    change.broken.replace("GOOD", &change.good).replace("BROKEN", &condition(variant.name));
                planted.insert((*file).clone(), text.replace(&change.good, &broken));
            }
        }
        copy_tree(root, &self.tree(), &planted.into_iter().collect::<Vec<_>>())
    }

    fn cargo(&self, verb: &str) -> Command {
        let mut command = cargo();
        command.args([verb, "--quiet", "--locked", "--profile", "broken", "--target-dir"]);
        command.arg(self.folder.join("target")).current_dir(self.tree());
        command.envs(scratch_variable());
        command
    }

    /// Builds the programs and tests that find `variants`, at once and with one set of features, so that each dependency is
    /// built once.
    fn build(&self, workspace: &Workspace, variants: &[Variant]) -> Result<BrokenTests, BrokenError> {
        let needed: Vec<Test> =
            variants.iter().filter_map(|variant| variant.by_test).chain([SUITES]).collect();
        let packages: BTreeSet<_> = needed.iter().map(|test| test.package).chain(PROGRAMS).collect();
        let files: BTreeSet<_> = needed.iter().map(|test| test.file).collect();
        let build = |verb| {
            let mut build = self.cargo(verb);
            build.args(["--message-format=json", "--features", FEATURES]);
            build.args(packages.iter().flat_map(|package| ["--package", package]));
            build
        };
        // With a test, so that what tests alone depend on counts among the features here, too.
        let mut programs = build("build");
        programs.args(PROGRAMS.iter().flat_map(|program| ["--bin", program])).args(["--test", SUITES.file]);
        let mut tests = build("test");
        tests.arg("--no-run");
        tests.args(files.iter().flat_map(|file| match file.starts_with('-') {
            true => vec![*file],
            false => vec!["--test", file],
        }));
        let mut built = Vec::new();
        for build in [&mut programs, &mut tests] {
            let output = output_of_build(build)?;
            if !output.status.success() {
                return Err(BrokenError::Build(said(&output.stderr)));
            }
            built = output.stdout;
        }
        let programs = said(&built).lines().filter_map(TestProgram::of_message).collect();
        let folder =
            |package: &workspace::Package| (package.name.clone(), self.tree().join(package.folder()));
        Ok(BrokenTests { programs, folders: workspace.packages.iter().map(folder).collect() })
    }

    fn simulation(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("target/broken/simulation"));
        command.args(arguments);
        command
    }

    fn check(&self) -> Command {
        Command::new(self.folder.join("target/broken/check"))
    }

    /// Runs what has to pass without a bug, and returns the last line of what it said.
    fn passes(&self, tests: &BrokenTests, judge: Judge) -> Result<String, BrokenError> {
        let mut command = match judge {
            Judge::Simulation => self.simulation(&["--seeds", SOUND_SEEDS]),
            Judge::Check => self.check(),
            Judge::Test(test) => tests.command(test)?,
        };
        if matches!(judge, Judge::Check) {
            command.args(["--paths", SOUND_PATHS]);
        }
        let ran = output("test", &mut command)?;
        let text = said(&ran.stdout);
        let last = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default().to_owned();
        if ran.status.success() { Ok(last) } else { Err(BrokenError::Unsound(text + &said(&ran.stderr))) }
    }

    fn judge(&self, tests: &BrokenTests, variant: &Variant, hangs_after: Duration) -> Judged {
        let mut found = Vec::new();
        if variant.in_simulation {
            let mut simulation = self.simulation(&["--seeds", SEEDS, "--fail-fast"]);
            let printed = said(&output("simulation", simulation.env(VARIABLE, variant.name))?.stdout);
            match printed.lines().find(|line| line.starts_with("seed ") && line.contains(" violates ")) {
                Some(violation) => found.push(violation.to_owned()),
                None => return Ok(Err("no world violates an invariant".to_owned())),
            }
        }
        if let Some(part) = variant.by_check {
            let mut check = self.check();
            // Without what is the same for all bugs.
            check.args(["--only-check", part, "--paths", "0"]).env(VARIABLE, variant.name);
            let printed = said(&output("check", &mut check)?.stdout);
            let shows = |line: &&str| line.ends_with(" events:") || line.starts_with("not reached");
            match printed.lines().find(shows) {
                Some(broken) => found.push(format!("check {part}: {}", broken.trim_end_matches(':'))),
                None => return Ok(Err(format!("the check of {part} finds no order of events"))),
            }
        }
        if !variant.by_cases.is_empty() {
            let mut command = tests.command(SUITES)?;
            command.args(&variant.by_cases).env(VARIABLE, variant.name);
            let ran = ended("suite", &mut command, hangs_after)?;
            let printed = ran.map(|ran| said(&ran.stdout)).unwrap_or_default();
            let passed = |case: &&&str| printed.contains(&format!("::{case} ... ok"));
            let blind: Vec<_> = variant.by_cases.iter().filter(passed).copied().collect();
            if !blind.is_empty() {
                return Ok(Err(format!("{} passes", blind.join(", "))));
            }
            found.push(variant.by_cases.join(", "));
        }
        if let Some(test @ Test { package, file, .. }) = variant.by_test {
            let ran = ended("test", tests.command(test)?.env(VARIABLE, variant.name), hangs_after)?;
            let how = match ran {
                Some(ran) if ran.status.success() => {
                    return Ok(Err(format!("the tests of {package}, {file} pass")));
                }
                Some(_) => "",
                None => ", which hang",
            };
            found.push(format!("tests of {package}, {file}{how}"));
        }
        Ok(Ok(found))
    }
}

struct BrokenTests {
    programs: Vec<TestProgram>,
    folders: BTreeMap<String, PathBuf>,
}

struct TestProgram {
    folder: PathBuf,
    /// What the list names: `--lib`, `--bins`, or a file below `tests`.
    file: String,
    program: PathBuf,
}

impl TestProgram {
    /// Reads a message of cargo. Returns `None` if it is not about a program of tests.
    fn of_message(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        message["profile"]["test"].as_bool().filter(|is_test| *is_test)?;
        let (target, folder) = (&message["target"], Path::new(message["manifest_path"].as_str()?).parent()?);
        let file = match target["kind"][0].as_str()? {
            "test" => target["name"].as_str()?,
            "bin" => "--bins",
            _ => "--lib",
        };
        let program = message["executable"].as_str()?.into();
        Some(Self { folder: folder.to_path_buf(), file: file.to_owned(), program })
    }
}

impl BrokenTests {
    fn folder(&self, package: &'static str) -> Result<&Path, BrokenError> {
        self.folders.get(package).map(PathBuf::as_path).ok_or(BrokenError::NoTest { package, file: "" })
    }

    fn program(&self, Test { package, file, .. }: Test) -> Result<&Path, BrokenError> {
        let folder = self.folder(package)?;
        let is_it = |built: &&TestProgram| built.folder == folder && built.file == file;
        let mut found = self.programs.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(&only.program),
            _ => Err(BrokenError::NoTest { package, file }),
        }
    }

    fn command(&self, test: Test) -> Result<Command, BrokenError> {
        let mut command = Command::new(self.program(test)?);
        command.args(test.module).current_dir(self.folder(test.package)?).envs(scratch_variable());
        Ok(command)
    }

    /// Whether the public suites have every case that finds one of `variants`.
    fn check_cases(&self, variants: &[Variant]) -> Result<(), BrokenError> {
        let listed = said(&output("suite", self.command(SUITES)?.arg("--list"))?.stdout);
        let is_missing = |case: &&str| !listed.contains(&format!("::{case}: test\n"));
        match variants.iter().flat_map(|variant| &variant.by_cases).copied().find(is_missing) {
            Some(case) => Err(BrokenError::NoCase(case)),
            None => Ok(()),
        }
    }
}

/// Returns the output of a test program with a bug, or `None` if it hangs, which shows the bug, too.
fn ended(
    program: &'static str,
    command: &mut Command,
    hangs_after: Duration,
) -> Result<Option<Output>, BrokenError> {
    match limit::output(command, hangs_after) {
        Err(cause) if cause.kind() == io::ErrorKind::TimedOut => Ok(None),
        ran => ran.map(Some).map_err(|cause| BrokenError::Start { program, cause }),
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

/// Runs a build, whose limit is that of a step: it is no test.
fn output_of_build(command: &mut Command) -> Result<Output, BrokenError> {
    limit::output(command, limit::STEP).map_err(|cause| BrokenError::Start { program: "cargo", cause })
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Copies the tree at `root`, with these texts instead of its own.
fn copy_tree(root: &Path, to: &Path, planted: &[(PathBuf, String)]) -> Result<(), BrokenError> {
    let mut kept = BTreeSet::new();
    for file in list(root)? {
        let to = to.join(&file);
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
    remove_others(to, &kept)
}

fn list(root: &Path) -> Result<Vec<PathBuf>, BrokenError> {
    let listed =
        workspace::files(root).map_err(|cause| BrokenError::Start { program: "git ls-files", cause })?;
    Ok(listed.into_iter().map(PathBuf::from).collect())
}

/// Removes the files below `folder` that are not in `kept`, and folders that are empty then: a module or package
/// that was deleted must not be found.
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
            // Succeeds only if it is empty. A package is found by its folder.
            let _keeps_files = fs::remove_dir(&path);
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
        assert!(!at("src/gone.rs").exists() && !at("src/old").exists());
    }
}
