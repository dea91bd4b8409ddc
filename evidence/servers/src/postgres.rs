//! PostgreSQL: one that Maven fetches, or the machine's own, with its data in a temporary folder. Primaries,
//! and standbys that stream from them.

mod locks;
mod pooler;
mod programs;

use crate::{
    free_address,
    jars::JarsError,
    owned::{self, Owned},
};
pub use pooler::Pooler;
use programs::Programs;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// The user that owns every database here.
const USER: &str = "postgres";

/// Ready within a second; a machine under load takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No programs.
    #[error(transparent)]
    Jars(#[from] JarsError),
    /// A file or a process is not to be had.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        cause: io::Error,
    },
    /// A program failed.
    #[error("{program}: {said}")]
    Program {
        /// Which one.
        program: &'static str,
        /// What it printed.
        said: String,
    },
    /// It ended, or did not answer in time.
    #[error("PostgreSQL at {address} {how}. Its last words:\n{log_end}")]
    Server {
        /// Where it was to listen.
        address: SocketAddr,
        /// What became of it.
        how: &'static str,
        /// The end of its log.
        log_end: String,
    },
}

fn system(what: impl ToString) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what: what.to_string(), cause }
}

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Postgres {
    /// Before the folder that it writes to, which is dropped after it.
    process: Owned,
    address: SocketAddr,
    programs: Programs,
    settings: Vec<String>,
    folder: TempDir,
}

impl Postgres {
    /// Starts a server without passwords on loopback, with these databases beside `postgres`. `settings` are
    /// `name=value`.
    ///
    /// The kernel kills the server when the *thread* that called this ends.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(target: &Path, databases: &[&str], settings: &[&str]) -> Result<Self, StartError> {
        let (programs, folder) = Self::initialised(target)?;
        let data = folder.path().join("data");
        for database in databases {
            // Maven's programs have no `createdb`.
            let mut single = programs.command("postgres");
            single.args(["--single", "-D"]).arg(&data).arg("postgres");
            let statement = folder.path().join("statement");
            fs::write(&statement, format!("CREATE DATABASE {database}\n")).map_err(system("a file"))?;
            single.stdin(File::open(statement).map_err(system("a file"))?);
            programs::run(&mut single, "postgres --single")?;
        }
        Self::on(programs, folder, settings)
    }

    /// Starts a server that offers TLS, as [`start`](Self::start) does, and lets in as said at
    /// [`certificate`](Self::certificate).
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start_with_tls(target: &Path) -> Result<Self, StartError> {
        let (programs, folder) = Self::initialised(target)?;
        let settings = locks::make(&folder.path().join("locks")).map_err(system("certificates"))?;
        Self::on(programs, folder, &settings.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A file of the server with TLS:
    ///
    /// - `authority.pem`, which signed the server's certificate, for the name `localhost` alone.
    /// - `client.pem` with `client.key`: the user `client` has to show it. `certified` has to show one, too,
    ///   but `client.pem` is not for that name. `encrypted` has to use TLS, and `postgres` may do without.
    /// - `stranger.pem`, an authority that signed `strange-client.pem` with `strange-client.key`.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.folder.path().join("locks").join(name)
    }

    /// Starts a standby that streams from this server under the name `standby`. Restarts this server, whose
    /// files it copies meanwhile: Maven's programs have no `pg_basebackup`.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn standby(&mut self) -> Result<Self, StartError> {
        let address = free_address().map_err(system("a free port"))?;
        self.standby_at(address)
    }

    /// [`standby`](Self::standby) with this address.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn standby_at(&mut self, address: SocketAddr) -> Result<Self, StartError> {
        let folder = folder().map_err(system("a temporary folder"))?;
        self.end(Signal::INT)?;
        // With owners and modes.
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.folder.path().join("data")).arg(folder.path());
        programs::run(&mut copy, "cp")?;
        let source = format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user={USER} application_name=standby'\n",
            self.address.port()
        );
        let data = folder.path().join("data");
        let configuration = OpenOptions::new().append(true).open(data.join("postgresql.auto.conf"));
        configuration.and_then(|mut file| file.write_all(source.as_bytes())).map_err(system("a file"))?;
        fs::write(data.join("standby.signal"), "").map_err(system("a file"))?;
        self.restart()?;
        Self::at(address, self.programs.clone(), folder, &[])
    }

    /// A folder with a fresh database.
    fn initialised(target: &Path) -> Result<(Programs, TempDir), StartError> {
        let programs = Programs::find(target)?;
        let folder = folder().map_err(system("a temporary folder"))?;
        let options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-D"];
        let mut initdb = programs.command("initdb");
        programs::run(initdb.args(options).arg(folder.path().join("data")), "initdb")?;
        Ok((programs, folder))
    }

    fn on(programs: Programs, folder: TempDir, settings: &[&str]) -> Result<Self, StartError> {
        let address = free_address().map_err(system("a free port"))?;
        Self::at(address, programs, folder, settings)
    }

    fn at(
        address: SocketAddr,
        programs: Programs,
        folder: TempDir,
        settings: &[&str],
    ) -> Result<Self, StartError> {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let process = launch(&programs, folder.path(), address, &settings)?;
        let mut server = Self { process, address, programs, settings, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The URL of a database on it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address)
    }

    /// Where it listens: the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its version, as its programs print it.
    pub fn version(&self) -> &str {
        self.programs.version()
    }

    /// The variable that makes other programs start servers of this one's version, and its value.
    pub fn programs(&self) -> (&'static str, String) {
        (programs::NAMED, self.programs.folder().display().to_string())
    }

    /// Makes a standby a primary, and waits until it takes writes.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn promote(&self) -> Result<(), StartError> {
        let mut promote = self.programs.command("pg_ctl");
        promote.args(["promote", "-w", "-D"]).arg(self.folder.path().join("data"));
        programs::run(&mut promote, "pg_ctl").map(drop)
    }

    /// Ends it without notice, if it has not ended, and starts it again at the same address, with its data.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.kill()?;
        self.process = launch(&self.programs, self.folder.path(), self.address, &self.settings)?;
        self.wait_until_ready()
    }

    /// Ends it without notice, and waits until it has ended.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<(), StartError> {
        // An immediate shutdown: no checkpoint, as in a crash. After SIGKILL the backends would outlive it,
        // and hold its port and memory.
        self.end(Signal::QUIT)
    }

    fn end(&mut self, signal: Signal) -> Result<(), StartError> {
        self.process.signal(signal).map_err(system("kill"))?;
        let ended = owned::wait_until(PATIENCE, || self.process.ended().map(|ended| ended.is_some()));
        if ended.map_err(system("postgres"))? { Ok(()) } else { Err(self.trouble("can't be killed")) }
    }

    /// Changes a setting that a running server can change, soon.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set(&mut self, setting: &str, value: &str) -> io::Result<()> {
        let file = self.folder.path().join("data/postgresql.auto.conf");
        let mut file = OpenOptions::new().append(true).open(file)?;
        file.write_all(format!("{setting} = '{value}'\n").as_bytes())?;
        self.process.signal(Signal::HUP)
    }

    /// Stops it as it stands (`SIGSTOP`), with the processes of its connections.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.signal(Signal::STOP)?;
        self.signal_connections(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.signal_connections(Signal::CONT)?;
        self.process.signal(Signal::CONT)
    }

    /// They have process groups of their own, so that they are found by their parent.
    fn signal_connections(&self, signal: Signal) -> io::Result<()> {
        for process in fs::read_dir("/proc")? {
            let stat = fs::read_to_string(process?.path().join("stat")).unwrap_or_default();
            let Some((id, rest)) = stat.split_once(" (") else { continue };
            // Behind the name, which may have parentheses itself: state, parent.
            let parent = rest.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1));
            if parent == Some(&*self.process.id().to_string())
                && let Some(id) = id.parse().ok().and_then(Pid::from_raw)
            {
                // It may have ended.
                let _gone = kill_process(id, signal);
            }
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let port = self.address.port().to_string();
        let mut has_ended = false;
        let is_ready = owned::wait_until(PATIENCE, || {
            has_ended = self.process.ended()?.is_some();
            // It listens before it accepts logins. Its file says when it accepts them.
            let state = fs::read_to_string(self.folder.path().join("data/postmaster.pid"));
            let accepts = state.is_ok_and(|state| {
                let is_here = state.lines().nth(3) == Some(&port);
                is_here && ["ready", "standby"].contains(&state.lines().nth(7).unwrap_or_default().trim())
            });
            Ok::<_, io::Error>(has_ended || accepts)
        });
        match (is_ready.map_err(system("postgres"))?, has_ended) {
            (true, false) => Ok(()),
            (_, true) => Err(self.trouble("has ended")),
            (false, false) => Err(self.trouble("does not answer")),
        }
    }

    fn trouble(&self, how: &'static str) -> StartError {
        StartError::Server { address: self.address, how, log_end: self.process.log_end() }
    }
}

impl Drop for Postgres {
    /// Processes of connections that are stopped would not notice its end.
    fn drop(&mut self) {
        let _best_effort = self.signal_connections(Signal::CONT);
    }
}

/// In memory, where there is a file system for it: each commit is synced. The server's own user has to be
/// able to write to it.
fn folder() -> io::Result<TempDir> {
    let folder =
        TempDir::with_prefix_in("postgres-", "/dev/shm").or_else(|_| TempDir::with_prefix("postgres-"))?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

fn launch(
    programs: &Programs,
    folder: &Path,
    address: SocketAddr,
    settings: &[String],
) -> Result<Owned, StartError> {
    let mut postgres = programs.command("postgres");
    postgres
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-k"])
        .arg(folder)
        .args(["-c", "shared_buffers=16MB", "-c", "max_connections=200"])
        // In its folder: in /dev/shm it would outlive a server that is killed.
        .args(["-c", "dynamic_shared_memory_type=mmap"])
        .args(settings.iter().flat_map(|setting| ["-c", setting]));
    Owned::start(postgres, &folder.join("log")).map_err(system("postgres"))
}
