//! DynamoDB Local 2.6.1: one process with its tables in files, which survive a restart. It enforces no permissions,
//! does not throttle, and never fails half-way. Each access key has tables of its own in each region. It listens on
//! every address of the machine, and has no option against that.

use crate::{
    answers,
    built::Artifact,
    free_address, in_memory,
    owned::{self, Plan, Server, StartError, is_a_server},
};
use std::{net::SocketAddr, path::Path, time::Duration};
use tempfile::TempDir;

const ARTIFACT: Artifact = Artifact { group: "com.amazonaws", name: "DynamoDBLocal", version: "2.6.1" };

const MAIN: &str = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner";

/// How many ports are tried: another process may take a free one first.
const PORTS: u32 = 5;

/// Its message then.
const PORT_TAKEN: &str = "Failed to bind";

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct DynamoDbLocal {
    /// Before the folder that it writes to, which is dropped after it.
    server: Server,
    _folder: TempDir,
}

is_a_server!(DynamoDbLocal);

impl DynamoDbLocal {
    /// Starts a server without tables, from jars that are fetched once into `target`.
    pub fn start(target: &Path) -> Result<Self, StartError> {
        let jars = ARTIFACT.fetch(target)?;
        let folder = in_memory("dynamodb-")?;
        let mut attempts = 1..PORTS;
        loop {
            let mut server = Server::launch(plan(&jars, folder.path(), free_address()?))?;
            match server.wait_until_ready() {
                Ok(()) => return Ok(Self { server, _folder: folder }),
                Err(_) if server.log_end().contains(PORT_TAKEN) && attempts.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }
}

fn plan(jars: &Path, folder: &Path, address: SocketAddr) -> Plan {
    let (jars, log, folder) = (jars.to_owned(), folder.join("log"), folder.to_owned());
    Plan {
        name: "DynamoDB Local".into(),
        address,
        log,
        // 3 s on two idle cores.
        patience: Duration::from_secs(90),
        command: Box::new(move || {
            let mut java = owned::command("java");
            // A small heap and quick compilation. The native SQLite library is among the jars.
            java.args(["-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1"])
                .arg(format!("-Djava.library.path={}", jars.display()))
                .arg("-cp")
                .arg(jars.join("*"))
                .args([MAIN, "-disableTelemetry", "-port", &address.port().to_string(), "-dbPath"])
                .arg(&folder)
                .current_dir(&folder);
            Ok(java)
        }),
        // It listens before it can answer, if only by a refusal.
        is_ready: Box::new(move || answers(address, "/", "HTTP/")),
    }
}
