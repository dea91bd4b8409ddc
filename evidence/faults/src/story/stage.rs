//! The storages that the story is played on: a file, or a server that ends with it.

use crate::Server;
use servers::{cassandra::Cassandra, dynamodb::DynamoDbLocal, owned};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;

/// A storage, the program, and a folder for what is said.
pub(crate) struct Stage {
    vvm: PathBuf,
    name: &'static str,
    url: String,
    /// Ends with the stage.
    _server: Option<Box<dyn fmt::Debug>>,
    folder: TempDir,
}

impl Stage {
    /// On a file without a server; on one node with it.
    pub(crate) fn set(server: Option<Server>, vvm: &Path) -> Result<Self, String> {
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

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// `vvm init-storage`, as a person would: again, if a server that has only just begun takes too long.
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
