//! Clusters of etcd, one member or several, of any version, with or without TLS.

use super::{START_TIMEOUT, StartError};
use crate::{
    built::{BuildError, GoServer},
    certificates::{self, ForServer},
    free_address, http,
    owned::{self, Owned},
};
use rustix::process::Signal;
use std::{
    env, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

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
        Ok(Self { path: "etcd".into(), version: super::version("etcd", "--version")? })
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
