//! The workspace by `cargo metadata`: its folder, packages, features and targets. And `cargo xtask package`.

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env,
    fmt::Display,
    io,
    path::{Path, PathBuf},
    process::Command,
};

/// The answer of `cargo metadata --no-deps`, as far as it is used.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    #[serde(rename = "manifest_path")]
    pub(crate) manifest: PathBuf,
    pub(crate) targets: Vec<Target>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    /// Whether `cargo test` runs it without being told to.
    #[serde(rename = "test")]
    pub(crate) is_tested: bool,
    #[serde(rename = "src_path")]
    pub(crate) root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    #[error("cargo could not be started: {0}. Run this as `cargo xtask …`")]
    Start(#[source] io::Error),
    #[error("`cargo metadata` failed:\n{0}")]
    Cargo(String),
    #[error("`cargo metadata` answered something that is not understood: {0}")]
    Answer(#[from] serde_json::Error),
}

impl Workspace {
    pub(crate) fn read() -> Result<Self, WorkspaceError> {
        let answer = cargo()
            .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
            .output()
            .map_err(WorkspaceError::Start)?;
        if !answer.status.success() {
            return Err(WorkspaceError::Cargo(String::from_utf8_lossy(&answer.stderr).into_owned()));
        }
        let mut workspace: Self = serde_json::from_slice(&answer.stdout)?;
        workspace.make_relative();
        Ok(workspace)
    }

    pub(crate) fn read_for(command: &str) -> Option<Self> {
        Self::read().inspect_err(|error| eprintln!("{command}: {error}")).ok()
    }

    fn make_relative(&mut self) {
        let root = self.root.clone();
        let relative = |path: &mut PathBuf| {
            if let Ok(inside) = path.strip_prefix(&root).map(Path::to_path_buf) {
                *path = inside;
            }
        };
        for package in &mut self.packages {
            relative(&mut package.manifest);
            package.targets.iter_mut().for_each(|target| relative(&mut target.root));
        }
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new(""))
    }
}

#[cfg(test)]
impl Package {
    /// A package with a name and nothing else.
    pub(crate) fn named(name: &str) -> Self {
        let manifest = format!("crates/{name}/Cargo.toml").into();
        let name = name.into();
        Self { name, manifest, targets: Vec::new(), features: BTreeMap::new() }
    }
}

/// Returns the cargo that runs this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns whether a command held. If it could not be carried out, says why.
pub(crate) fn holds(command: &str, outcome: Result<bool, impl Display>) -> bool {
    outcome.unwrap_or_else(|error| {
        eprintln!("{command}: {error}");
        false
    })
}

/// Returns the files below `root` that git tracks or would track, relative to it. Fails with what git said.
pub(crate) fn files(root: &Path) -> io::Result<Vec<String>> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(listing).current_dir(root).output()?;
    if !listed.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&listed.stdout);
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Runs cargo. Returns whether it succeeded; what it says of itself is shown.
pub(crate) fn succeeds(command: &str, cargo: &mut Command) -> bool {
    let status =
        cargo.status().inspect_err(|error| eprintln!("{command}: cargo could not be started: {error}"));
    status.is_ok_and(|status| status.success())
}

/// Does what publishing would: packages the crates below `crates/`, builds each from its package, and finds their order.
/// Uploads nothing. Returns whether that succeeded.
pub(crate) fn package() -> bool {
    let Some(workspace) = Workspace::read_for("package") else { return false };
    let published = workspace.packages.iter().filter(|package| package.folder().starts_with("crates"));
    let mut package = cargo();
    package.args(["publish", "--dry-run", "--locked"]).current_dir(&workspace.root);
    published.for_each(|one| {
        package.args(["--package", &one.name]);
    });
    succeeds("package", &mut package)
}
