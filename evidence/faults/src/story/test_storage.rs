//! [`TestStorage`]: a file, or a server that ends with the test.

use crate::Server;
use servers::{
    cassandra::Cassandra,
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
    objects::{ObjectServer, Product},
    owned,
    postgres::Postgres,
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;

/// A storage, the vvm program, and a folder for logs.
pub(crate) struct TestStorage {
    vvm: PathBuf,
    name: &'static str,
    url: String,
    /// Ends with this value.
    _server: Option<Box<dyn fmt::Debug>>,
    folder: TempDir,
}

impl TestStorage {
    /// Starts one server, or uses a file without one.
    pub(crate) fn start(server: Option<Server>, vvm: &Path) -> Result<Self, String> {
        let folder = TempDir::with_prefix("story-").map_err(|error| error.to_string())?;
        let (name, url, server) = match server {
            None => {
                ("SQLite", format!("sqlite:{}?allow=overlay", folder.path().join("story.db").display()), None)
            }
            Some(Server::Scylla) => {
                let cassandra = Cassandra::start(1, &servers::target()).map_err(|error| error.to_string())?;
                let url = format!("scylla://{}/story", cassandra.contact_points());
                init(vvm, &format!("{url}?replication=1"))?;
                ("Apache Cassandra 5.0.5", url, Some(Box::new(cassandra) as _))
            }
            Some(Server::Dynamodb) => {
                let local = DynamoDbLocal::start(&servers::target()).map_err(|error| error.to_string())?;
                let url = format!("dynamodb://eu-west-1/story?endpoint={}", local.endpoint());
                init(vvm, &url)?;
                ("DynamoDB Local 2.6.1", url, Some(Box::new(local) as _))
            }
            Some(Server::Etcd) => {
                let program = Program::built().map_err(|error| error.to_string())?;
                let cluster = Cluster::start(&program, 3).map_err(|error| error.to_string())?;
                let url = format!("etcd://{}/story", cluster.addresses());
                init(vvm, &url)?;
                ("etcd", url, Some(Box::new(cluster) as _))
            }
            Some(Server::Kubernetes) => {
                let server = Kubernetes::start().map_err(|error| error.to_string())?;
                let url = server.url("default");
                init(vvm, &url)?;
                ("Kubernetes", url, Some(Box::new(server) as _))
            }
            Some(Server::S3) => {
                let server = ObjectServer::start(Product::Versitygw).map_err(|error| error.to_string())?;
                let url = server.url("story");
                init(vvm, &url)?;
                ("versitygw", url, Some(Box::new(server) as _))
            }
            Some(Server::Postgres) => {
                let server = Postgres::start(&servers::target(), &[], &[]);
                let server = server.map_err(|error| error.to_string())?;
                let url = server.url("postgres");
                init(vvm, &url)?;
                ("PostgreSQL", url, Some(Box::new(server) as _))
            }
        };
        Ok(Self { vvm: vvm.to_owned(), name, url, _server: server, folder })
    }

    pub(crate) fn vvm(&self) -> &Path {
        &self.vvm
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl fmt::Display for TestStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// Runs `vvm init-storage`, and repeats it if a server that has just started takes too long.
fn init(vvm: &Path, url: &str) -> Result<(), String> {
    let system = |error: io::Error| format!("`vvm init-storage` can't be run: {error}");
    let mut attempts = 1..5;
    loop {
        let mut command = owned::command(vvm).map_err(system)?;
        let command = command.args(["init-storage", "--storage", url]);
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(system)?;
        if ended.success() {
            return Ok(());
        }
        if attempts.next().is_none() {
            return Err(format!("`vvm init-storage` has failed: {ended}"));
        }
    }
}
