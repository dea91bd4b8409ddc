//! etcd, with its data in a temporary folder: [`Etcd`] from Debian's package, beside its `etcdctl`, and
//! [`Cluster`].

use crate::{
    built::{BuildError, GoServer},
    certificates::{self, ForServer},
    free_address, http,
    owned::{self, Owned},
};
use rustix::process::Signal;
use std::{
    env, io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// Starting takes a second on an idle machine, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program is missing.
    #[error("`{program}` can't be started ({cause}): install Debian's packages etcd-server and etcd-client")]
    Missing {
        /// The program.
        program: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// A file or a process could not be made.
    #[error("etcd: {0}")]
    System(#[from] io::Error),
    /// It ended, or did not answer in time.
    #[error("etcd at {address} {how}. The end of its log:\n{log_end}")]
    Server {
        /// Its address.
        address: SocketAddr,
        /// What happened.
        how: &'static str,
        /// The end of its log.
        log_end: String,
    },
}

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Etcd {
    /// Before the folder that it writes to, which is dropped after it.
    _process: Owned,
    address: SocketAddr,
    version: String,
    _folder: TempDir,
}

impl Etcd {
    /// Starts an empty server. Requires `etcdctl`, too.
    ///
    /// Call it from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start() -> Result<Self, StartError> {
        version("etcdctl", "version")?;
        let version = version("etcd", "--version")?;
        let folder = TempDir::with_prefix("etcd-")?;
        let (address, peers) = (free_address()?, free_address()?);
        let mut process = run(folder.path(), address, peers)?;
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || TcpStream::connect(address).is_ok())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(Self { _process: process, address, version, _folder: folder }),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Server { address, how, log_end: process.log_end() })
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The storage's URL for a prefix.
    pub fn storage(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.address)
    }

    /// Its version, as it prints it.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// Returns the first line of a program's version output.
fn version(program: &'static str, option: &str) -> Result<String, StartError> {
    let missing = |cause| StartError::Missing { program, cause };
    let output = Command::new(program).arg(option).env("ETCDCTL_API", "3").output().map_err(missing)?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or(program).replace(" Version:", ""))
}

fn run(folder: &Path, address: SocketAddr, peers: SocketAddr) -> io::Result<Owned> {
    let mut etcd = owned::command("etcd")?;
    let (clients, peers) = (format!("http://{address}"), format!("http://{peers}"));
    etcd.args(["--name", "bench", "--logger", "zap", "--log-level", "error"])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("bench={peers}")]);
    Owned::start(etcd, &folder.join("log"))
}

/// The version that is built, if the machine has Go.
const BUILT: GoServer = GoServer {
    name: "etcd",
    module: "go.etcd.io/etcd/server/v3",
    version: "v3.7.3",
    package: "go.etcd.io/etcd/server/v3",
};

/// The program of a server.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    version: String,
}

impl Program {
    /// The variable that makes tests start servers of this program.
    pub const NAMED: &'static str = "VVM_TEST_ETCD_PROGRAM";

    /// Version 3.7.3, built once.
    ///
    /// # Errors
    /// It can't be built.
    pub fn built() -> Result<Self, BuildError> {
        Ok(Self { path: BUILT.build()?, version: "etcd 3.7.3".into() })
    }

    /// The machine's own.
    ///
    /// # Errors
    /// There is none.
    pub fn installed() -> Result<Self, StartError> {
        Ok(Self { path: "etcd".into(), version: version("etcd", "--version")? })
    }

    /// The one that [`NAMED`](Self::NAMED) names.
    pub fn named() -> Option<Self> {
        let path = PathBuf::from(env::var_os(Self::NAMED)?);
        Some(Self { version: path.display().to_string(), path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// A running cluster. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Member>,
    folder: TempDir,
}

/// A member of a cluster.
#[derive(Debug)]
pub struct Member {
    process: Owned,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    clients: SocketAddr,
    health: SocketAddr,
}

impl Cluster {
    /// Starts an empty cluster on loopback.
    ///
    /// The kernel kills the servers when the *thread* that called this ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(program: &Program, members: usize) -> Result<Self, StartError> {
        let folder = TempDir::with_prefix("etcd-")?;
        Self::start_in(folder, program, members, "http", &[])
    }

    /// Starts a cluster of one member that requires TLS with a certificate of the client: see
    /// [`file`](Self::file).
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start_with_tls(program: &Program) -> Result<Self, StartError> {
        let folder = TempDir::with_prefix("etcd-")?;
        let server = ForServer { file: "server".into(), names: vec!["localhost".into()] };
        certificates::make(folder.path(), &[server])?;
        let file = |name| folder.path().join(name).display().to_string();
        let options = [
            ("--cert-file", file("server.pem")),
            ("--key-file", file("server.key")),
            ("--trusted-ca-file", file(certificates::AUTHORITY)),
            ("--client-cert-auth", "true".into()),
        ];
        let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self::start_in(folder, program, 1, "https", &options)
    }

    /// A file of a cluster with TLS: `authority.pem`, which signed the server's certificate for the name
    /// `localhost` alone, and `client.pem` with `client.key`; `stranger.pem`, which signed
    /// `strange-client.pem` with `strange-client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_in(
        folder: TempDir,
        program: &Program,
        members: usize,
        scheme: &str,
        options: &[String],
    ) -> Result<Self, StartError> {
        let addresses = || (0..members).map(|_| free_address()).collect::<io::Result<Vec<_>>>();
        let (clients, peers, health) = (addresses()?, addresses()?, addresses()?);
        let list: Vec<String> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let list = list.join(",");
        let mut started = Vec::new();
        for (number, ((clients, peer), health)) in clients.into_iter().zip(peers).zip(health).enumerate() {
            let data = folder.path().join(format!("m{number}")).display().to_string();
            let (name, url) = (format!("m{number}"), format!("{scheme}://{clients}"));
            let (peer, watched) = (format!("http://{peer}"), format!("http://{health}"));
            let arguments = [
                ("--name", &name),
                ("--data-dir", &data),
                ("--listen-client-urls", &url),
                ("--advertise-client-urls", &url),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--listen-metrics-urls", &watched),
                ("--initial-cluster", &list),
                ("--log-level", &"error".into()),
                ("--logger", &"zap".into()),
            ];
            let arguments = arguments.iter().map(|(name, value)| format!("{name}={value}"));
            let arguments: Vec<String> = arguments.chain(options.iter().cloned()).collect();
            let (program, log) = (program.path.clone(), folder.path().join(format!("m{number}.log")));
            let process = launch(&program, &arguments, &log)?;
            started.push(Member { process, program, arguments, log, clients, health });
        }
        let mut cluster = Self { members: started, folder };
        cluster.members.iter_mut().try_for_each(Member::wait_until_ready)?;
        Ok(cluster)
    }

    /// Its members.
    pub fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// The addresses of its members, with commas between them.
    pub fn addresses(&self) -> String {
        self.members.iter().map(|member| member.clients.to_string()).collect::<Vec<_>>().join(",")
    }
}

impl Member {
    /// Where clients connect: the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.clients
    }

    /// Ends it without notice, and waits until it has ended.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.signal(Signal::KILL)?;
        owned::wait_until(START_TIMEOUT, || self.process.ended().map(|ended| ended.is_some())).map(drop)
    }

    /// Starts it again after [`kill`](Self::kill), with its data.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.process = launch(&self.program, &self.arguments, &self.log)?;
        self.wait_until_ready()
    }

    /// Stops it as it stands (`SIGSTOP`).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Waits until it knows a leader of a majority.
    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = self.process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || is_healthy(self.health).unwrap_or(false))
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(()),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Server { address: self.clients, how, log_end: self.process.log_end() })
    }
}

fn is_healthy(address: SocketAddr) -> io::Result<bool> {
    Ok(http::get(address, "/health")?.contains("\"health\":\"true\""))
}

/// A server that dies with the thread that starts it, also from a test, which guards none.
fn launch(program: &Path, arguments: &[String], log: &Path) -> io::Result<Owned> {
    let mut etcd = Command::new("setpriv");
    etcd.arg("--pdeathsig=KILL").arg(program).args(arguments);
    Owned::start(etcd, log)
}
