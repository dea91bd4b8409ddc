//! Apache Cassandra 5.0.5: one node, or three that replicate.

use crate::{
    built::Artifact,
    certificates::{self, AUTHORITY, ForServer},
    owned::{self, Plan as ServerPlan, Server, StartError, listens, system},
};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// The port for clients. Every node has its own address, so that all can have this port.
const CLIENT_PORT: u16 = 9042;

const NODE_PORT: u16 = 7000;

/// Starting takes 8 s on two idle cores, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A running cluster. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Cassandra {
    /// Dropped before the folder that they write to.
    nodes: Vec<Server>,
    locks: Option<Locks>,
    folder: TempDir,
}

const MOST_REPLICAS: usize = 3;

impl Cassandra {
    /// Starts a cluster of so many nodes without passwords. [`Plan`] has other options.
    pub fn start(nodes: u8, target: &Path) -> Result<Self, StartError> {
        Plan { nodes, is_locked: false }.start(target)
    }

    /// The folder with certificates and keys, if the cluster is locked: the authority `authority.pem`, which signed the
    /// nodes' certificates (for their addresses and `nodes.vvm.test`) and `client.pem` with `client.key`; and another
    /// authority, `stranger.pem`, which signed `strange-client.pem` with `strange-client.key`.
    pub fn locks(&self) -> Option<&Path> {
        self.locks.as_ref().map(|locks| &*locks.0)
    }

    pub fn contact_points(&self) -> String {
        self.nodes.iter().map(|node| node.address().to_string()).collect::<Vec<_>>().join(",")
    }

    /// The URL of a keyspace with a replica on each node, at most three.
    pub fn url(&self, keyspace: &str) -> String {
        let replicas = self.nodes.len().min(MOST_REPLICAS);
        format!("scylla://{}/{keyspace}?replication={replicas}", self.contact_points())
    }

    fn wait_until_joined(&self) -> Result<(), StartError> {
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.address()).collect();
        if owned::wait_until(START_TIMEOUT, || Ok::<_, StartError>(is_complete(&addresses)))? {
            return Ok(());
        }
        Err(self.nodes[0].failed("and the others have not found each other"))
    }

    pub fn nodes(&mut self) -> &mut [Server] {
        &mut self.nodes
    }
}

const LOG_CONFIGURATION: &str = "<configuration>\
    <appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\
    <encoder><pattern>%level %date %logger: %msg%n</pattern></encoder></appender>\
    <root level=\"WARN\"><appender-ref ref=\"OUT\"/></root></configuration>\n";

#[derive(Clone, Debug)]
struct NodeConfiguration {
    folder: PathBuf,
    address: Ipv4Addr,
    seed: Ipv4Addr,
    token: i64,
    /// Without these, the node requires no password.
    locks: Option<Locks>,
}

impl NodeConfiguration {
    fn main_file(&self) -> PathBuf {
        self.folder.join("cassandra.yaml")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("logback.xml")
    }

    fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.log_file(), LOG_CONFIGURATION)?;
        fs::write(self.main_file(), self.text())
    }

    /// Paxos v2 is recommended; version 1 is the default for compatibility.
    fn text(&self) -> String {
        let Self { folder, address, seed, .. } = self;
        let folder = folder.display();
        format!(
            "cluster_name: vvm\n\
             num_tokens: 1\n\
             partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             data_file_directories: ['{folder}/data']\n\
             commitlog_directory: '{folder}/commitlog'\n\
             saved_caches_directory: '{folder}/saved_caches'\n\
             hints_directory: '{folder}/hints'\n\
             cdc_raw_directory: '{folder}/cdc_raw'\n\
             commitlog_sync: periodic\n\
             commitlog_sync_period: 10s\n\
             seed_provider:\n\
             - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n\
             \x20 parameters: [{{seeds: '{seed}:{NODE_PORT}'}}]\n\
             listen_address: {address}\n\
             rpc_address: {address}\n\
             endpoint_snitch: SimpleSnitch\n\
             paxos_variant: v2\n\
             {}",
            self.locks.as_ref().map_or_else(
                || "authenticator: AllowAllAuthenticator\n".into(),
                |locks| locks.configuration(*address)
            ),
        )
    }
}

const MAIN: &str = "org.apache.cassandra.service.CassandraDaemon";

/// Small, compiled in haste, and alone in the world: no waiting for a ring to settle.
const QUICK: [&str; 9] = [
    "-Xms256m",
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    // Several nodes share a few cores: a collector that works beside them takes more than it saves.
    "-XX:+UseSerialGC",
    // No wait of a node that is alone with its tokens, but how long a joining one calls for the others.
    "-Dcassandra.ring_delay_ms=20000",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.gossip_settle_min_wait_ms=100",
    "-Dcassandra.auto_bootstrap=false",
    // The first user, where there are users.
    "-Dcassandra.superuser_setup_delay_ms=0",
];

const EXPORTS: [&str; 9] = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];

const OPENS: [&str; 15] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

fn command(jars: &Path, node: &NodeConfiguration) -> Command {
    let mut java = owned::command("java");
    java.arg(format!("-Dcassandra.config=file://{}", node.main_file().display()))
        .arg(format!("-Dcassandra.storagedir={}", node.folder.display()))
        .arg(format!("-Dlogback.configurationFile={}", node.log_file().display()))
        .arg(format!("-Dcassandra.initial_token={}", node.token))
        .args(QUICK);
    for (option, packages) in [("--add-exports", &EXPORTS[..]), ("--add-opens", &OPENS)] {
        for package in packages {
            java.arg(option).arg(format!("{package}=ALL-UNNAMED"));
        }
    }
    // Java itself reads the star.
    java.arg("-cp").arg(jars.join("*")).arg(MAIN).current_dir(&node.folder);
    java
}

const ARTIFACT: Artifact =
    Artifact { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.5" };

#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: u8,
    /// Whether it requires a certificate and a password. User and password are `cassandra`; see [`Cassandra::locks`].
    pub is_locked: bool,
}

impl Plan {
    /// Starts it, from jars that are fetched once into `target`.
    pub fn start(&self, target: &Path) -> Result<Cassandra, StartError> {
        let jars = ARTIFACT.fetch(target)?;
        let folder = TempDir::with_prefix("cassandra-").map_err(system("a temporary folder"))?;
        let addresses = free_addresses(self.nodes)?;
        let locks = if self.is_locked {
            let made = Locks::make(&folder.path().join("locks"), &addresses);
            Some(made.map_err(system("certificates"))?)
        } else {
            None
        };
        let mut cluster = Cassandra { nodes: Vec::new(), locks, folder };
        for (index, &address) in addresses.iter().enumerate() {
            let configuration = NodeConfiguration {
                folder: cluster.folder.path().join(format!("node-{}", index + 1)),
                address,
                seed: addresses[0],
                token: token(index, addresses.len()),
                locks: cluster.locks.clone(),
            };
            configuration.write().map_err(system("a node's configuration"))?;
            let (jars, client) = (jars.clone(), SocketAddr::from((address, CLIENT_PORT)));
            let server = Server::launch(ServerPlan {
                name: "a node of Cassandra".into(),
                address: client,
                log: configuration.folder.join("log"),
                patience: START_TIMEOUT,
                command: Box::new(move || Ok(command(&jars, &configuration))),
                is_ready: Box::new(move || listens(client)),
            })?;
            cluster.nodes.push(server);
            // The first node introduces the others, which may start together.
            if index == 0 {
                cluster.nodes[0].wait_until_ready()?;
            }
        }
        cluster.nodes.iter_mut().try_for_each(|node| node.wait_until_ready())?;
        // A locked node answers only clients with a certificate.
        if !self.is_locked {
            cluster.wait_until_joined()?;
        }
        Ok(cluster)
    }
}

/// Returns consecutive loopback addresses on which a node's ports are free.
fn free_addresses(count: u8) -> Result<Vec<Ipv4Addr>, StartError> {
    let mut last = io::Error::other("no node was asked for");
    for _ in 0..20 {
        let [second, third] = [fastrand::u8(1..255), fastrand::u8(1..255)];
        let addresses: Vec<_> = (1..=count).map(|node| Ipv4Addr::new(127, second, third, node)).collect();
        let is_free = |address: &Ipv4Addr| {
            [CLIENT_PORT, NODE_PORT]
                .into_iter()
                .try_for_each(|port| TcpListener::bind((*address, port)).map(drop))
        };
        match addresses.iter().try_for_each(is_free) {
            Ok(()) => return Ok(addresses),
            Err(cause) => last = cause,
        }
    }
    Err(system("loopback addresses (127.0.0.0/8)")(last))
}

fn token(index: usize, count: usize) -> i64 {
    let part = u64::MAX / count as u64;
    i64::MIN.wrapping_add_unsigned(part * index as u64)
}

const TIMEOUT: Duration = Duration::from_secs(2);

type Version = Vec<u8>;

/// Whether each node knows all others, and all have the same schema. A client that comes earlier may find a node
/// that knows no other, and that does not have a keyspace created on the others.
fn is_complete(nodes: &[SocketAddr]) -> bool {
    let mut versions = BTreeSet::new();
    for node in nodes {
        match known_versions(*node) {
            Ok(known) if known.len() == nodes.len() => versions.extend(known),
            // A node that does not answer yet is asked again.
            Ok(_) | Err(_) => return false,
        }
    }
    versions.len() == 1
}

fn known_versions(node: SocketAddr) -> io::Result<Vec<Version>> {
    let tables = ["local", "peers"];
    ask(node, &tables.map(|table| format!("SELECT schema_version FROM system.{table}")))
}

fn ask(node: SocketAddr, queries: &[String]) -> io::Result<Vec<Vec<u8>>> {
    let mut connection = TcpStream::connect(node)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    request(&mut connection, STARTUP, b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0")?;
    let mut values = Vec::new();
    for query in queries {
        let mut body = u32::try_from(query.len()).unwrap_or_default().to_be_bytes().to_vec();
        body.extend_from_slice(query.as_bytes());
        body.extend_from_slice(&CONSISTENCY_ONE.to_be_bytes());
        body.push(SKIP_METADATA);
        let result = request(&mut connection, QUERY, &body)?;
        values.extend(only_column(&result).ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(values)
}

/// From the native protocol, version 4.
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const CONSISTENCY_ONE: u16 = 1;
const SKIP_METADATA: u8 = 0x02;

/// Sends a request, and returns the body of its response. An error's body has no rows.
fn request(connection: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = vec![0x04, 0, 0, 0, opcode];
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or_default().to_be_bytes());
    frame.extend_from_slice(body);
    connection.write_all(&frame)?;
    let mut header = [0; 9];
    connection.read_exact(&mut header)?;
    let [.., a, b, c, d] = header;
    let mut body = Vec::new();
    connection.take(u32::from_be_bytes([a, b, c, d]).into()).read_to_end(&mut body)?;
    Ok(body)
}

/// The values of a result of one column without metadata: kind, flags, count of columns, count of rows, and per row a
/// length and as many bytes. `None` for another answer. Rows without a value are left out: nodes that have not joined.
fn only_column(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    const ROWS: i32 = 2;
    let mut rest = body;
    let mut number = || {
        let (number, behind) = rest.split_first_chunk()?;
        rest = behind;
        Some(i32::from_be_bytes(*number))
    };
    let (kind, _flags, columns, rows) = (number()?, number()?, number()?, number()?);
    if (kind, columns) != (ROWS, 1) {
        return None;
    }
    let mut values = Vec::new();
    for _ in 0..rows {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        if let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) {
            let (value, behind) = rest.split_at_checked(length)?;
            values.push(value.to_vec());
            rest = behind;
        }
    }
    Some(values)
}

/// A folder with the files of [`certificates::make`]. A node's certificate is for its address and [`NAME`].
#[derive(Clone, Debug)]
struct Locks(PathBuf);

const NAME: &str = "nodes.vvm.test";

impl Locks {
    fn make(folder: &Path, nodes: &[Ipv4Addr]) -> io::Result<Self> {
        let server = |node: &Ipv4Addr| ForServer {
            file: node.to_string(),
            names: vec![NAME.into(), node.to_string()],
        };
        certificates::make(folder, &nodes.iter().map(server).collect::<Vec<_>>())?;
        for node in nodes {
            // As Cassandra reads them: a key, and the certificate after it.
            let read = |suffix: &str| fs::read_to_string(folder.join(format!("{node}.{suffix}")));
            let both = read("key")? + &read("pem")?;
            fs::write(folder.join(format!("{node}.pem")), both)?;
        }
        Ok(Self(folder.to_owned()))
    }

    fn configuration(&self, node: Ipv4Addr) -> String {
        let own = self.0.join(format!("{node}.pem"));
        let authority = self.0.join(AUTHORITY);
        format!(
            "authenticator: PasswordAuthenticator\n\
             authorizer: CassandraAuthorizer\n\
             permissions_validity: 0ms\n\
             client_encryption_options:\n\
             \x20 enabled: true\n\
             \x20 optional: false\n\
             \x20 require_client_auth: true\n\
             \x20 ssl_context_factory:\n\
             \x20   class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n\
             \x20 keystore: {}\n\
             \x20 truststore: {}\n",
            own.display(),
            authority.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_divide_the_ring() {
        assert_eq!(
            [0, 1, 2].map(|index| token(index, 3)),
            [i64::MIN, -3074457345618258603, 3074457345618258602]
        );
    }

    #[test]
    fn values_are_read_and_a_row_without_one_is_left_out() {
        let body = b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\x01c";
        assert_eq!(only_column(body), Some(vec![b"ab".to_vec(), b"c".to_vec()]));
        assert_eq!(only_column(&body[..body.len() - 1]), None, "cut off");
        assert_eq!(only_column(b"\0\0\x22\0\0\x03bad"), None, "an error");
    }
}
