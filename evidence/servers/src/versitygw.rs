//! versitygw 1.8.0: an S3 server on a folder, with one bucket.
//!
//! With its metadata in files beside the objects, its reads show the content of one write with the tag of
//! another one. So it loses replacements that it acknowledged: a server that must be refused.

use crate::{
    built::{BuildError, GoServer},
    free_address,
    owned::{self, Owned},
};
use rustix::process::Signal;
use std::{
    fs, io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

/// How it is built.
pub const PROGRAM: GoServer = GoServer {
    name: "versitygw",
    module: "github.com/versity/versitygw",
    version: "v1.8.0",
    package: "github.com/versity/versitygw/cmd/versitygw",
};

/// The variables with its credentials, for clients.
pub const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "password")];

const BUCKET: &str = "vvm-test";

/// Starting takes 0.1 s on an idle machine, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the server keeps the tags of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metadata {
    /// In extended attributes of the objects' files, replaced with them.
    Attributes,
    /// In files of their own.
    Beside,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A file or a process could not be made.
    #[error("versitygw: {0}")]
    System(#[from] io::Error),
    /// It ended, or did not answer in time.
    #[error("versitygw at {address} {how}. The end of its log:\n{log_end}")]
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
pub struct Versitygw {
    /// Before the folder that it writes to, which is dropped after it.
    process: Owned,
    program: PathBuf,
    metadata: Metadata,
    address: SocketAddr,
    folder: TempDir,
}

impl Versitygw {
    /// Starts a server with an empty bucket, and builds it first unless it was built before.
    ///
    /// Call it from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(metadata: Metadata) -> Result<Self, StartError> {
        let program = PROGRAM.build()?;
        // In memory if possible, where extended attributes work, too.
        let folder = TempDir::with_prefix_in("versitygw-", "/dev/shm")
            .or_else(|_| TempDir::with_prefix("versitygw-"))?;
        let address = free_address()?;
        fs::create_dir_all(folder.path().join("objects").join(BUCKET))?;
        fs::create_dir(folder.path().join("metadata"))?;
        let process = run(&program, folder.path(), address, metadata)?;
        let mut server = Self { process, program, metadata, address, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = self.process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || TcpStream::connect(self.address).is_ok())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(()),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Server { address: self.address, how, log_end: self.process.log_end() })
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// Kills it, and starts it again at the same address with the same objects.
    ///
    /// Call it from the main thread, as [`start`](Self::start).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.process.end()?;
        self.process = run(&self.program, self.folder.path(), self.address, self.metadata)?;
        self.wait_until_ready()
    }

    /// Its address, as in [`url`](Self::url).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a prefix in its bucket.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://{}", self.address)
    }
}

fn run(program: &Path, folder: &Path, address: SocketAddr, metadata: Metadata) -> io::Result<Owned> {
    let [(_, id), (_, secret)] = CREDENTIALS;
    let mut versitygw = owned::command(program)?;
    versitygw.env("ROOT_ACCESS_KEY", id).env("ROOT_SECRET_KEY", secret);
    // Without the option each request has a connection of its own.
    versitygw.args(["--keep-alive", "--quiet", "--port", &address.to_string(), "posix"]);
    if metadata == Metadata::Beside {
        versitygw.arg("--sidecar").arg(folder.join("metadata"));
    }
    versitygw.arg(folder.join("objects"));
    Owned::start(versitygw, &folder.join("log"))
}
