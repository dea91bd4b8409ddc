//! [`Replicated`]: a database server whose standby can be promoted. Also what its kinds share: a folder that the server's own
//! user can write to, and the programs of a jar.

use crate::{
    built::Artifact,
    free_address, in_memory,
    owned::{Server, StartError, run, system},
};
use std::{
    fs, io,
    net::SocketAddr,
    ops::DerefMut,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A server with its data in a folder. It is a primary, or a standby that copies what its primary writes.
pub trait Replicated: DerefMut<Target = Server> + Sized + 'static {
    fn version(&self) -> &str;

    /// Starts a standby of this server. Restarts this server, whose files it copies meanwhile.
    fn standby(&mut self) -> Result<Self, StartError> {
        self.standby_at(free_address()?)
    }

    fn standby_at(&mut self, address: SocketAddr) -> Result<Self, StartError>;

    fn promote(&mut self) -> Result<(), StartError>;

    /// Lets commits wait for a standby, if servers of this kind can.
    fn wait_for_standby(&self, waits: bool) -> Result<(), StartError>;

    /// Ends it so that its files can be copied, and copies them.
    fn copied(&mut self) -> Result<Copy, StartError>;

    /// Copies its files. Restarts it.
    fn copy(&mut self) -> Result<Copy, StartError> {
        let copy = self.copied()?;
        self.start_again()?;
        Ok(copy)
    }

    /// Ends it without notice, and starts it with the files of a copy. Carries out `statement` before it accepts writes.
    fn restore(&mut self, copy: &Copy, statement: &str) -> Result<(), StartError>;
}

/// The files of a server as they were once.
#[derive(Debug)]
pub struct Copy(TempDir);

impl Copy {
    pub(crate) fn of(server: &Path, prefix: &str) -> Result<Self, StartError> {
        let folder = folder(prefix)?;
        copy(server, folder.path())?;
        Ok(Self(folder))
    }

    pub(crate) fn restore(&self, server: &Path) -> Result<(), StartError> {
        fs::remove_dir_all(server.join("data"))?;
        copy(self.0.path(), server)
    }

    pub(crate) fn into_folder(self) -> TempDir {
        self.0
    }
}

/// With owners and modes.
fn copy(from: &Path, to: &Path) -> Result<(), StartError> {
    let mut copy = Command::new("cp");
    run(copy.arg("-a").arg(from.join("data")).arg(to), "coreutils").map(drop)
}

pub(crate) fn folder(prefix: &str) -> io::Result<TempDir> {
    let folder = in_memory(prefix)?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

pub(crate) const SETPRIV: &str = "Debian's package util-linux";

/// A command that dies with the thread that starts it, and does not run as root. (A change of the user clears the request to
/// die, so `setpriv` makes it afterwards.)
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    // Readable for the server's user, as the folder of a test need not be.
    command.arg("--pdeathsig=KILL").arg(program).current_dir("/");
    command
}

/// The folder `name` beside an artifact's jars. If there is none, `unpack` makes it of the jar's files, and says where.
pub(crate) fn unpacked(
    artifact: &Artifact,
    target: &Path,
    name: &str,
    unpack: impl FnOnce(&Path) -> Result<PathBuf, StartError>,
) -> Result<PathBuf, StartError> {
    let jars = artifact.fetch(target)?;
    let folder = jars.join(name);
    if !folder.exists() {
        // Tests may be at it at once: each unpacks its own, and the first one stays.
        let own = TempDir::with_prefix_in(name, &jars).map_err(system(jars.display()))?;
        let jar = jars.join(format!("{}-{}.jar", artifact.name, artifact.version));
        run(Command::new("jar").arg("xf").arg(jar).current_dir(&own), "a JDK, 17 or later")?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755))?;
        if let Err(cause) = fs::rename(unpack(own.path())?, &folder)
            && !folder.exists()
        {
            return Err(system(folder.display())(cause));
        }
    }
    Ok(folder)
}
