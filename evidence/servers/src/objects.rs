//! Servers of object stores, each with one bucket: versitygw and MinIO, with the interface of S3, and
//! Azurite, with that of Azure.

use crate::{
    built::{BuildError, GoServer, NpmPackage},
    free_address, http,
    owned::{self, Owned},
};
use rustix::process::Signal;
use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// How versitygw is built.
const VERSITYGW: GoServer = GoServer {
    name: "versitygw",
    module: "github.com/versity/versitygw",
    version: "v1.8.0",
    package: "github.com/versity/versitygw/cmd/versitygw",
};

/// How MinIO is built: the newest version, of 2026-02-12.
const MINIO: GoServer = GoServer {
    name: "minio",
    module: "github.com/minio/minio",
    version: "v0.0.0-20260212201848-7aac2a2c5b7c",
    package: "github.com/minio/minio",
};

/// The variables with the credentials of all of them, for clients.
pub const CREDENTIALS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "local"),
    ("AWS_SECRET_ACCESS_KEY", "password"),
    ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
];

const BUCKET: &str = "vvm-test";

/// Starting takes seconds on an idle machine, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// versitygw 1.8.0.
    Versitygw,
    /// versitygw with the tags of objects in files of their own. Its reads show the content of one write with
    /// the tag of another one. So it loses replacements that it acknowledged: a server that must be refused.
    VersitygwBeside,
    /// MinIO.
    MinIo,
    /// Azurite, an emulator of Azure.
    Azurite,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A file or a process could not be made.
    #[error("the server's files or process: {0}")]
    System(#[from] io::Error),
    /// It ended, or did not answer in time.
    #[error("{product} at {address} {how}. The end of its log:\n{log_end}")]
    Server {
        /// What it is.
        product: Product,
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
pub struct ObjectServer {
    /// Before the folder that it writes to, which is dropped after it.
    process: Owned,
    product: Product,
    path: PathBuf,
    address: SocketAddr,
    folder: TempDir,
}

impl Product {
    /// Returns the program's file, which is built or fetched first unless it was before.
    fn file(self) -> Result<PathBuf, BuildError> {
        match self {
            Self::Versitygw | Self::VersitygwBeside => VERSITYGW.build(),
            Self::MinIo => MINIO.build(),
            Self::Azurite => fetch(),
        }
    }

    /// Starts it. Its bucket is a folder, or has to be made.
    fn run(self, path: &Path, folder: &Path, address: SocketAddr) -> io::Result<Owned> {
        let [(_, id), (_, secret), _] = CREDENTIALS;
        let objects = folder.join("objects");
        let mut command = match self {
            Self::Versitygw | Self::VersitygwBeside => {
                let mut versitygw = owned::command(path)?;
                versitygw.env("ROOT_ACCESS_KEY", id).env("ROOT_SECRET_KEY", secret);
                // Without the option each request has a connection of its own.
                versitygw.args(["--keep-alive", "--quiet", "--port", &address.to_string(), "posix"]);
                if self == Self::VersitygwBeside {
                    versitygw.arg("--sidecar").arg(folder.join("metadata"));
                }
                versitygw
            }
            Self::MinIo => {
                let mut minio = owned::command(path)?;
                minio.env("MINIO_ROOT_USER", id).env("MINIO_ROOT_PASSWORD", secret).env("MINIO_CI_CD", "1");
                let console = free_address()?.to_string();
                minio.args(["server", "--quiet", "--address", &address.to_string()]);
                minio.args(["--console-address", &console]);
                minio
            }
            Self::Azurite => command(path, address)?,
        };
        command.arg(objects);
        Owned::start(command, &folder.join("log"))
    }
}

impl fmt::Display for Product {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Versitygw => "versitygw 1.8.0",
            Self::VersitygwBeside => "versitygw 1.8.0 with --sidecar",
            Self::MinIo => "MinIO of 2026-02-12",
            Self::Azurite => NAME,
        })
    }
}

impl ObjectServer {
    /// Starts a server with an empty bucket.
    ///
    /// Call it from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(product: Product) -> Result<Self, StartError> {
        let path = product.file()?;
        // In memory if possible, where extended attributes work, too.
        let folder =
            TempDir::with_prefix_in("objects-", "/dev/shm").or_else(|_| TempDir::with_prefix("objects-"))?;
        let address = free_address()?;
        fs::create_dir_all(folder.path().join("objects").join(BUCKET))?;
        fs::create_dir(folder.path().join("metadata"))?;
        let process = product.run(&path, folder.path(), address)?;
        let mut server = Self { process, product, path, address, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = self.process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || self.is_ready())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(()),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        let log_end = self.process.log_end();
        Err(StartError::Server { product: self.product, address: self.address, how, log_end })
    }

    fn is_ready(&self) -> bool {
        match self.product {
            // It listens before it has found its objects.
            Product::MinIo => {
                http::get(self.address, "/minio/health/ready").is_ok_and(|answer| answer.contains(" 200 "))
            }
            Product::Azurite => makes_container(self.address, BUCKET),
            Product::Versitygw | Product::VersitygwBeside => TcpStream::connect(self.address).is_ok(),
        }
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
        self.process = self.product.run(&self.path, self.folder.path(), self.address)?;
        self.wait_until_ready()
    }

    /// Its address, as in [`url`](Self::url).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a prefix in its bucket.
    pub fn url(&self, prefix: &str) -> String {
        match self.product {
            Product::Azurite => url(BUCKET, prefix, self.address),
            _ => format!("s3://{BUCKET}/{prefix}?endpoint=http://{}", self.address),
        }
    }
}

const NAME: &str = "Azurite 3.35.0";

/// The newest version that Node 20 runs.
const PACKAGE: NpmPackage = NpmPackage { name: "azurite", version: "3.35.0" };

/// Of its one account, which is documented.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn fetch() -> Result<PathBuf, BuildError> {
    PACKAGE.fetch()
}

/// The folder with its data has to follow.
fn command(package: &Path, address: SocketAddr) -> io::Result<Command> {
    let mut node = owned::command("node")?;
    node.arg(package.join("node_modules/azurite/dist/src/blob/main.js"));
    // Versions of the interface that it does not know are new, and change nothing of what is used here.
    node.args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
    node.args(["--blobHost", &address.ip().to_string(), "--blobPort", &address.port().to_string()]);
    node.arg("--location");
    Ok(node)
}

/// Makes the container, unless it is there. Whether it is.
fn makes_container(address: SocketAddr, container: &str) -> bool {
    let mut node = Command::new("node");
    node.args(["-e", include_str!("objects/container.js"), &address.to_string(), ACCOUNT, KEY, container]);
    node.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn url(container: &str, prefix: &str, address: SocketAddr) -> String {
    format!("az://{container}/{prefix}?account={ACCOUNT}&endpoint=http://{address}/{ACCOUNT}")
}
