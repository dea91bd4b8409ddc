//! What is built: a folder with the sources, the time of its commit, its version, and the target.

use super::draft::{DistError, output, read};
use crate::workspace::Workspace;
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The sources of one release for one target.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) root: PathBuf,
    commit: String,
    /// The commit's time, in seconds since 1970: the time of every file that is made.
    pub(super) time: u64,
    pub(super) version: String,
    pub(super) target: Target,
}

/// A target.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) triple: String,
    pub(super) machine: Machine,
    pub(super) has_glibc: bool,
}

/// A kind of processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) linux: &'static str,
    /// The name of Debian and of Go.
    pub(super) debian: &'static str,
}

/// A C library.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Libc {
    Gnu,
    Musl,
}

const MACHINES: [Machine; 2] =
    [Machine { linux: "x86_64", debian: "amd64" }, Machine { linux: "aarch64", debian: "arm64" }];

impl Target {
    /// Returns a target on a machine like this one: a program must run here, because it prints its pages.
    fn of(machine: &str, libc: Libc) -> Result<Self, DistError> {
        let known = MACHINES.into_iter().find(|known| known.linux == machine);
        let machine = known.ok_or_else(|| DistError::Machine(machine.into()))?;
        let name = if libc == Libc::Gnu { "gnu" } else { "musl" };
        let triple = format!("{}-unknown-linux-{name}", machine.linux);
        Ok(Self { triple, machine, has_glibc: libc == Libc::Gnu })
    }
}

impl Source {
    /// Reads the workspace and its last commit.
    ///
    /// # Errors
    /// No workspace, no commit, or a machine without a target.
    pub(super) fn read(libc: Libc) -> Result<Self, DistError> {
        let target = Target::of(env::consts::ARCH, libc)?;
        let root = Workspace::read()?.root;
        let root = fs::canonicalize(&root).map_err(|cause| DistError::File { path: root, cause })?;
        let said = output(git(&root).args(["log", "-1", "--format=%H %ct"]))?;
        let said = String::from_utf8_lossy(&said);
        let unknown = || DistError::Unexpected("git names no commit and its time".into());
        let (commit, time) = said.trim().split_once(' ').ok_or_else(unknown)?;
        let time = time.parse().map_err(|_| unknown())?;
        let version = version(&root)?;
        Ok(Self { root, commit: commit.to_owned(), time, version, target })
    }

    /// # Errors
    /// The work tree differs from the commit.
    pub(super) fn must_be_committed(&self) -> Result<(), DistError> {
        let changes = output(git(&self.root).args(["status", "--porcelain"]))?;
        let changes = String::from_utf8_lossy(&changes).into_owned();
        if changes.is_empty() { Ok(()) } else { Err(DistError::Changed(changes)) }
    }

    /// Returns the commit's files in another folder.
    ///
    /// # Errors
    /// They can't be read or written.
    pub(super) fn copy_to(&self, folder: &Path) -> Result<Self, DistError> {
        let failed = |cause: io::Error| DistError::File { path: folder.into(), cause };
        let files = output(git(&self.root).args(["archive", "--format=tar", &self.commit]))?;
        tar::Archive::new(&*files).unpack(folder).map_err(failed)?;
        let root = fs::canonicalize(folder).map_err(failed)?;
        Ok(Self { root, ..self.clone() })
    }

    /// Returns where the files of this target are written.
    pub(super) fn packages(&self) -> PathBuf {
        self.root.join("target/packages").join(&self.target.triple)
    }

    /// Returns a file of the sources.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn file(&self, path: &str) -> Result<Vec<u8>, DistError> {
        read(&self.root.join(path))
    }
}

pub(super) fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(root);
    git
}

/// Returns the version of the workspace, which all crates have.
fn version(root: &Path) -> Result<String, DistError> {
    let manifest = read(&root.join("Cargo.toml"))?;
    let manifest = String::from_utf8_lossy(&manifest);
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.package]");
    let version = lines.filter_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).next();
    version.map(str::to_owned).ok_or_else(|| DistError::Unexpected("Cargo.toml has no version".into()))
}

/// Returns cargo's own folder, which has the sources of dependencies.
pub(super) fn cargo_home() -> PathBuf {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_follows_from_machine_and_library() {
        let arm = Target::of("aarch64", Libc::Musl).unwrap();
        let expected = ("aarch64-unknown-linux-musl", "arm64", false);
        assert_eq!((&*arm.triple, arm.machine.debian, arm.has_glibc), expected);
        assert_eq!(Target::of("x86_64", Libc::Gnu).unwrap().triple, "x86_64-unknown-linux-gnu");
        assert!(Target::of("riscv64", Libc::Gnu).is_err());
    }
}
