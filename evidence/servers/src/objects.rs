//! Servers of object stores, each with one bucket: versitygw, MinIO and S3Mock speak S3's interface, Azurite Azure's.

use crate::{
    answers,
    built::{Artifact, GoProgram, npm_package},
    free_address, in_memory,
    owned::{self, Plan, Server, StartError, is_a_server, listens},
    target,
};
use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

const VERSITYGW: GoProgram = GoProgram {
    name: "versitygw",
    release: Some("1.8.0"),
    files: &[],
    modules: &["github.com/versity/versitygw@v1.8.0"],
    package: "github.com/versity/versitygw/cmd/versitygw",
};

const MINIO: GoProgram = GoProgram {
    name: "minio",
    release: Some("0.0.0-20260212201848-7aac2a2c5b7c"),
    modules: &["github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"],
    package: "github.com/minio/minio",
    ..VERSITYGW
};

const S3MOCK: Artifact = Artifact { group: "com.adobe.testing", name: "s3mock", version: "4.7.0" };

/// The variables with the credentials of all of them, for clients.
pub const CREDENTIALS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "local"),
    ("AWS_SECRET_ACCESS_KEY", "password"),
    ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
];

pub const BUCKET: &str = "vvm-test";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    Versitygw,
    /// versitygw with the tags of objects in files of their own. Its reads show the content of one write with
    /// the tag of another one. So it loses replacements that it acknowledged: a server that must be refused.
    VersitygwBeside,
    MinIo,
    Azurite,
    /// S3Mock 4.7.0. Its conditions race: several writers win. A server that must be refused.
    S3Mock,
}

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct ObjectServer {
    /// Before the folder that it writes to, which is dropped after it.
    server: Server,
    product: Product,
    _folder: TempDir,
}

is_a_server!(ObjectServer);

impl Product {
    fn file(self) -> Result<PathBuf, StartError> {
        match self {
            Self::Versitygw | Self::VersitygwBeside => VERSITYGW.build(),
            Self::MinIo => MINIO.build(),
            // The newest version that Node 20 runs.
            Self::Azurite => npm_package("azurite", "3.35.0"),
            Self::S3Mock => S3MOCK.fetch(&target()),
        }
    }

    /// Its bucket is a folder, or has to be made.
    fn command(self, path: &Path, folder: &Path, address: SocketAddr) -> Result<Command, StartError> {
        let [(_, id), (_, secret), _] = CREDENTIALS;
        let objects = folder.join("objects");
        let mut command = match self {
            Self::Versitygw | Self::VersitygwBeside => {
                let mut versitygw = owned::command(path);
                versitygw.env("ROOT_ACCESS_KEY", id).env("ROOT_SECRET_KEY", secret);
                // Without the option each request has a connection of its own.
                versitygw.args(["--keep-alive", "--quiet", "--port", &address.to_string(), "posix"]);
                if self == Self::VersitygwBeside {
                    versitygw.arg("--sidecar").arg(folder.join("metadata"));
                }
                versitygw
            }
            Self::MinIo => {
                let mut minio = owned::command(path);
                minio.env("MINIO_ROOT_USER", id).env("MINIO_ROOT_PASSWORD", secret).env("MINIO_CI_CD", "1");
                let console = free_address()?.to_string();
                minio.args(["server", "--quiet", "--address", &address.to_string()]);
                minio.args(["--console-address", &console]);
                minio
            }
            Self::Azurite => {
                let mut node = owned::command("node");
                node.arg(path.join("node_modules/azurite/dist/src/blob/main.js"));
                // Versions of the interface that it does not know are new, and change nothing that is used here.
                node.args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
                node.args([
                    "--blobHost",
                    &address.ip().to_string(),
                    "--blobPort",
                    &address.port().to_string(),
                ]);
                node.arg("--location");
                node
            }
            Self::S3Mock => {
                let mut java = owned::command("java");
                java.args(["-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1"])
                    // A dependency brings another logger.
                    .arg("-Dorg.springframework.boot.logging.LoggingSystem=none")
                    .arg("-cp")
                    .arg(path.join("*"))
                    .arg("com.adobe.testing.s3mock.S3MockApplication")
                    .arg(format!("--com.adobe.testing.s3mock.store.initial-buckets={BUCKET}"))
                    .arg(format!("--com.adobe.testing.s3mock.httpPort={}", address.port()))
                    .args(["--server.address=127.0.0.1", "--server.port=0"])
                    .current_dir(folder);
                return Ok(java);
            }
        };
        command.arg(objects);
        Ok(command)
    }

    fn is_ready(self, address: SocketAddr) -> bool {
        match self {
            // It listens before it has found its objects.
            Self::MinIo => answers(address, "/minio/health/ready", " 200 "),
            Self::Azurite => makes_container(address, BUCKET),
            Self::Versitygw | Self::VersitygwBeside | Self::S3Mock => listens(address),
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Versitygw => "versitygw 1.8.0",
            Self::VersitygwBeside => "versitygw 1.8.0 with --sidecar",
            Self::MinIo => "MinIO of 2026-02-12",
            Self::Azurite => "Azurite 3.35.0",
            Self::S3Mock => "S3Mock 4.7.0",
        })
    }
}

impl ObjectServer {
    pub fn start(product: Product) -> Result<Self, StartError> {
        let path = product.file()?;
        // In memory if possible, where extended attributes work, too.
        let folder = in_memory("objects-")?;
        let address = free_address()?;
        fs::create_dir_all(folder.path().join("objects").join(BUCKET))?;
        fs::create_dir(folder.path().join("metadata"))?;
        let home = folder.path().to_owned();
        let server = Server::start(Plan {
            name: product.to_string(),
            address,
            log: folder.path().join("log"),
            // Seconds on an idle machine.
            patience: Duration::from_secs(120),
            command: Box::new(move || product.command(&path, &home, address)),
            is_ready: Box::new(move || product.is_ready(address)),
        })?;
        Ok(Self { server, product, _folder: folder })
    }

    pub fn url(&self, prefix: &str) -> String {
        match self.product {
            Product::Azurite => {
                format!(
                    "az://{BUCKET}/{prefix}?account={ACCOUNT}&endpoint=http://{}/{ACCOUNT}",
                    self.address()
                )
            }
            _ => format!("s3://{BUCKET}/{prefix}?endpoint=http://{}", self.address()),
        }
    }
}

/// The one account of Azurite, which is documented.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn makes_container(address: SocketAddr, container: &str) -> bool {
    let mut node = Command::new("node");
    node.args(["-e", include_str!("objects/container.js"), &address.to_string(), ACCOUNT, KEY, container]);
    node.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
