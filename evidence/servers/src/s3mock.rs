//! S3Mock 4.7.0, with one bucket. Its conditions race: several writers win. A server that must be refused.

use crate::{
    free_address,
    jars::{self, Artifact, JarsError},
    owned::{self, Owned},
};
use std::{
    io,
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};
use tempfile::TempDir;

const ARTIFACT: Artifact = Artifact { group: "com.adobe.testing", name: "s3mock", version: "4.7.0" };

const MAIN: &str = "com.adobe.testing.s3mock.S3MockApplication";

const BUCKET: &str = "vvm-test";

/// Starting takes 8 s on two idle cores, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No jars.
    #[error(transparent)]
    Jars(#[from] JarsError),
    /// A file or a process could not be made.
    #[error("S3Mock: {0}")]
    System(#[from] io::Error),
    /// It ended, or did not answer in time.
    #[error("S3Mock at {address} {how}. The end of its log:\n{log_end}")]
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
pub struct S3Mock {
    /// Before the folder that it writes to, which is dropped after it.
    _process: Owned,
    address: SocketAddr,
    _folder: TempDir,
}

impl S3Mock {
    /// Starts a server with an empty bucket, from jars that are fetched once into `target`.
    ///
    /// Call it from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(target: &Path) -> Result<Self, StartError> {
        let jars = jars::fetch(ARTIFACT, target)?;
        let folder = TempDir::with_prefix("s3mock-")?;
        let address = free_address()?;
        let mut process = run(&jars, folder.path(), address)?;
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || TcpStream::connect(address).is_ok())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(Self { _process: process, address, _folder: folder }),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Server { address, how, log_end: process.log_end() })
    }

    /// The URL of a prefix in its bucket.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://{}", self.address)
    }
}

fn run(jars: &Path, folder: &Path, address: SocketAddr) -> io::Result<Owned> {
    let mut java = owned::command("java")?;
    java.args(["-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1"])
        // A dependency brings another logger.
        .arg("-Dorg.springframework.boot.logging.LoggingSystem=none")
        .arg("-cp")
        .arg(jars.join("*"))
        .arg(MAIN)
        .arg(format!("--com.adobe.testing.s3mock.store.initial-buckets={BUCKET}"))
        .arg(format!("--com.adobe.testing.s3mock.httpPort={}", address.port()))
        .args(["--server.address=127.0.0.1", "--server.port=0"])
        .current_dir(folder);
    Owned::start(java, &folder.join("log"))
}
