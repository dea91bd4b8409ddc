//! DynamoDB Local 2.6.1: one process with its tables in files, which survive a restart.
//!
//! It enforces no permissions, does not throttle, and never fails half-way. Each access key has tables of its
//! own in each region. It listens on every address of the machine, and has no option against that.

use crate::{
    free_address,
    jars::{self, Artifact, JarsError},
    owned::{self, Owned},
};
use rustix::process::Signal;
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

const ARTIFACT: Artifact = Artifact { group: "com.amazonaws", name: "DynamoDBLocal", version: "2.6.1" };

const MAIN: &str = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner";

/// Starting takes 3 s on two idle cores, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// How long the first byte of an answer may take.
const FIRST_BYTE: Duration = Duration::from_secs(2);

/// How many ports are tried: another process may take a free one first.
const PORTS: u32 = 5;

/// Its message then.
const PORT_TAKEN: &str = "Failed to bind";

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No jars.
    #[error(transparent)]
    Jars(#[from] JarsError),
    /// A file or a process could not be made.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// It ended, or did not answer in time.
    #[error("DynamoDB Local at {address} {how}. The end of its log:\n{log_end}")]
    Server {
        /// Its address.
        address: SocketAddr,
        /// What happened.
        how: &'static str,
        /// The end of its log.
        log_end: String,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct DynamoDbLocal {
    /// Before the folder that it writes to, which is dropped after it.
    process: Owned,
    address: SocketAddr,
    jars: PathBuf,
    folder: TempDir,
}

impl DynamoDbLocal {
    /// Starts a server without tables, from jars that are fetched once into `target`.
    ///
    /// Call it from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(target: &Path) -> Result<Self, StartError> {
        let jars = jars::fetch(ARTIFACT, target)?;
        let folder = folder().map_err(system("a temporary folder"))?;
        let mut attempts = 1..PORTS;
        loop {
            let address = free_address().map_err(system("a free port"))?;
            let mut process = run(&jars, folder.path(), address)?;
            match wait_until_ready(&mut process, address) {
                Ok(()) => return Ok(Self { process, address, jars, folder }),
                Err(_) if process.log_end().contains(PORT_TAKEN) && attempts.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its URL, the same after a restart.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address, as in [`endpoint`](Self::endpoint).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// Kills it, and starts it again at the same address with the same tables.
    ///
    /// Call it from the main thread, as [`start`](Self::start).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.process.end().map_err(system("java"))?;
        self.process = run(&self.jars, self.folder.path(), self.address)?;
        wait_until_ready(&mut self.process, self.address)
    }
}

fn failed(process: &Owned, address: SocketAddr, how: &'static str) -> StartError {
    StartError::Server { address, how, log_end: process.log_end() }
}

/// Makes its folder, in memory if possible: each write is synced, which can take seconds on a busy disk.
fn folder() -> io::Result<TempDir> {
    TempDir::with_prefix_in("dynamodb-", "/dev/shm").or_else(|_| TempDir::with_prefix("dynamodb-"))
}

fn run(jars: &Path, folder: &Path, address: SocketAddr) -> Result<Owned, StartError> {
    let mut java = owned::command("java").map_err(system("java"))?;
    // A small heap and quick compilation. The native SQLite library is among the jars.
    java.args(["-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1"])
        .arg(format!("-Djava.library.path={}", jars.display()))
        .arg("-cp")
        .arg(jars.join("*"))
        .args([MAIN, "-disableTelemetry", "-port", &address.port().to_string(), "-dbPath"])
        .arg(folder)
        .current_dir(folder);
    Owned::start(java, &folder.join("log")).map_err(system("java"))
}

fn wait_until_ready(process: &mut Owned, address: SocketAddr) -> Result<(), StartError> {
    let mut has_ended = false;
    let is_ready = owned::wait_until(START_TIMEOUT, || {
        has_ended = process.ended().map_err(system("java"))?.is_some();
        Ok::<_, StartError>(has_ended || answers(address).is_ok())
    })?;
    match (is_ready, has_ended) {
        (true, false) => Ok(()),
        (_, true) => Err(failed(process, address, "has ended")),
        (false, false) => Err(failed(process, address, "does not answer")),
    }
}

/// Sends an empty request: the server listens before it can answer.
fn answers(address: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(FIRST_BYTE))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    connection.read_exact(&mut [0])
}
