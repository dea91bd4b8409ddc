//! etcd, with its data in a temporary folder: [`Etcd`] from Debian's package, beside its `etcdctl`, and
//! [`Cluster`].

mod cluster;

pub use cluster::{Cluster, Member, Program};

use crate::{
    free_address,
    owned::{self, Owned},
};
use std::{io, net::SocketAddr, net::TcpStream, path::Path, process::Command, time::Duration};
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
