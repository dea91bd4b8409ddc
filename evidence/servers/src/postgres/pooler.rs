//! PgBouncer in transaction mode: each transaction may run on another connection to the server.

use super::{Postgres, StartError, USER, folder, programs, system};
use crate::{
    free_address,
    owned::{self, Owned},
};
use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
};
use tempfile::TempDir;

/// Where Debian's package `pgbouncer` puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A running pooler. Dropping it ends it.
#[derive(Debug)]
pub struct Pooler {
    /// Before the folder that it writes to, which is dropped after it.
    process: Owned,
    address: SocketAddr,
    version: String,
    _folder: TempDir,
}

impl Pooler {
    /// Starts one before `server`, with fewer connections to it than candidates have to the pooler, and
    /// without prepared statements. `None` if this machine has no PgBouncer.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(server: &Postgres) -> Result<Option<Self>, StartError> {
        if !Path::new(PROGRAM).exists() {
            return Ok(None);
        }
        let version = programs::run(programs::command(Path::new(PROGRAM)).arg("--version"), "pgbouncer")?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        let folder = folder().map_err(system("a temporary folder"))?;
        let address = free_address().map_err(system("a free port"))?;
        let users = folder.path().join("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).map_err(system("a file"))?;
        // Before 1.21 there are no prepared statements in this mode, and no option for them.
        let configuration = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 4\nmax_client_conn = 1000\n{}",
            server.address.port(),
            address.port(),
            users.display(),
            if has_prepared_statements(&version) { "max_prepared_statements = 0\n" } else { "" },
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, configuration).map_err(system("a file"))?;
        let mut pgbouncer = programs::command(Path::new(PROGRAM));
        pgbouncer.arg(file);
        let process = Owned::start(pgbouncer, &folder.path().join("log")).map_err(system("pgbouncer"))?;
        let mut pooler = Self { process, address, version, _folder: folder };
        let mut has_ended = false;
        let answers = owned::wait_until(super::PATIENCE, || {
            has_ended = pooler.process.ended()?.is_some();
            Ok::<_, std::io::Error>(has_ended || TcpStream::connect(address).is_ok())
        });
        if answers.map_err(system("pgbouncer"))? && !has_ended {
            return Ok(Some(pooler));
        }
        Err(StartError::Program { program: "pgbouncer", said: pooler.process.log_end() })
    }

    /// The URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its version, as it prints it.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn has_prepared_statements(version: &str) -> bool {
    let mut numbers = version.trim_start_matches("PgBouncer ").split('.').map(str::parse::<u32>);
    let number = (numbers.next(), numbers.next());
    matches!(number, (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (1, 21))
}
