//! etcd as Debian packages it: one member, its data in a temporary folder.

use crate::{
    free_address,
    owned::{self, Owned},
};
use std::{io, net::SocketAddr, net::TcpStream, path::Path, process::Command, time::Duration};
use tempfile::TempDir;

/// Ready within a second; a machine under load takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program is not there.
    #[error("`{program}` can't be started ({cause}): install Debian's packages etcd-server and etcd-client")]
    Missing {
        /// Which one.
        program: &'static str,
        /// What the system says.
        cause: io::Error,
    },
    /// A file or a process is not to be had.
    #[error("etcd: {0}")]
    System(#[from] io::Error),
    /// It ended, or did not answer in time.
    #[error("etcd at {address} {how}. Its last words:\n{last_words}")]
    Server {
        /// Where it was to listen.
        address: SocketAddr,
        /// What became of it.
        how: &'static str,
        /// The end of its log.
        last_words: String,
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
    /// Starts a server without keys, if `etcdctl` is there, too.
    ///
    /// To be called from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start() -> Result<Self, StartError> {
        version("etcdctl", "version")?;
        let version = version("etcd", "--version")?;
        let folder = TempDir::with_prefix("etcd-")?;
        let (address, peers) = (free_address()?, free_address()?);
        let mut process = run(folder.path(), address, peers)?;
        let mut has_ended = false;
        let is_ready = owned::wait_until(PATIENCE, || {
            has_ended = process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || TcpStream::connect(address).is_ok())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(Self { _process: process, address, version, _folder: folder }),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Server { address, how, last_words: process.last_words() })
    }

    /// Where clients go.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it says that it is.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The first line that a program says of its version.
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
