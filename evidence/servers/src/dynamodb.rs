//! DynamoDB Local 2.6.1, which AWS makes for tests: one process, its tables in files, so that they survive a
//! restart.
//!
//! What it isn't: it enforces no permissions, has no other regions, throttles nobody and never fails
//! half-way. Each key of each region has tables of its own in it, as accounts have. It listens on every
//! address of the machine; there is no option to tell it not to.

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

/// Ready within 3 s on two quiet cores; a machine under load takes its time.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long it may take to say anything at all, once it has a connection.
const FIRST_BYTE: Duration = Duration::from_secs(2);

/// How often a free port is looked for: somebody else may take it before Java does.
const PORTS: u32 = 5;

/// Its words then.
const PORT_TAKEN: &str = "Failed to bind";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No jars.
    #[error(transparent)]
    Jars(#[from] JarsError),
    /// A file or a process is not to be had.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        cause: io::Error,
    },
    /// It ended, or did not answer in time.
    #[error("DynamoDB Local at {address} {how}. Its last words:\n{last_words}")]
    Server {
        /// Where it was to listen.
        address: SocketAddr,
        /// What became of it.
        how: &'static str,
        /// The end of its log.
        last_words: String,
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
    /// To be called from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(target: &Path) -> Result<Self, StartError> {
        let jars = jars::fetch(ARTIFACT, target)?;
        let folder = folder().map_err(system("a temporary folder"))?;
        let mut attempts = 1..PORTS;
        loop {
            let address = free_address().map_err(system("a free port"))?;
            let mut process = run(&jars, folder.path(), address)?;
            match wait_until_ready(&mut process, address) {
                Ok(()) => return Ok(Self { process, address, jars, folder }),
                Err(_) if process.last_words().contains(PORT_TAKEN) && attempts.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where clients go: the same after a restart.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// As [`endpoint`](Self::endpoint), for who puts something in between.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it as it stands (`SIGSTOP`): it answers nobody, and its connections stay.
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

    /// Ends it without notice.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.signal(Signal::KILL)
    }

    /// Ends it without notice, if it hasn't ended, and starts it again at the same address, with the tables
    /// that it had.
    ///
    /// To be called from the main thread, as [`start`](Self::start).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.kill().map_err(system("java"))?;
        let has_ended = owned::wait_until(PATIENCE, || Ok::<_, io::Error>(self.process.ended()?.is_some()));
        if !has_ended.map_err(system("java"))? {
            return Err(trouble(&self.process, self.address, "can't be killed"));
        }
        self.process = run(&self.jars, self.folder.path(), self.address)?;
        wait_until_ready(&mut self.process, self.address)
    }
}

fn trouble(process: &Owned, address: SocketAddr, how: &'static str) -> StartError {
    StartError::Server { address, how, last_words: process.last_words() }
}

/// In memory, where there is a file system for it: each write is synced, and on a disk that others use one
/// can take seconds. Files there outlive the process, which is all that is asked of them.
fn folder() -> io::Result<TempDir> {
    TempDir::with_prefix_in("dynamodb-", "/dev/shm").or_else(|_| TempDir::with_prefix("dynamodb-"))
}

fn run(jars: &Path, folder: &Path, address: SocketAddr) -> Result<Owned, StartError> {
    let mut java = owned::command("java").map_err(system("java"))?;
    // Small, and compiled in haste. The SQLite library of this machine's kind lies among the jars, whose star
    // Java itself reads.
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
    let is_ready = owned::wait_until(PATIENCE, || {
        has_ended = process.ended().map_err(system("java"))?.is_some();
        Ok::<_, StartError>(has_ended || answers(address).is_ok())
    })?;
    match (is_ready, has_ended) {
        (true, false) => Ok(()),
        (_, true) => Err(trouble(process, address, "has ended")),
        (false, false) => Err(trouble(process, address, "does not answer")),
    }
}

/// Whatever it says to a request that asks for nothing: it listens before it can answer.
fn answers(address: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(FIRST_BYTE))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    connection.read_exact(&mut [0])
}
