//! Apache Cassandra 5.0.5: one node, or three that replicate.

mod ring;

use crate::{
    jars::{self, Artifact, JarsError},
    owned::{self, Owned},
};
use ring::Locks;
use rustix::process::Signal;
use std::{
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// The port for clients. Every node has its own address, so that all can have this port.
const CLIENT_PORT: u16 = 9042;

/// The port for other nodes.
const NODE_PORT: u16 = 7000;

/// Starting takes 8 s on two idle cores, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// The cluster could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The jars could not be fetched.
    #[error(transparent)]
    Jars(#[from] JarsError),
    /// A node's clock can't be moved.
    #[error(transparent)]
    Faketime(#[from] FaketimeMissing),
    /// A file or a process could not be made.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// A node ended, or did not answer in time.
    #[error("node {address} {how}. The end of its log:\n{log_end}")]
    Node {
        /// Its address.
        address: Ipv4Addr,
        /// What happened.
        how: &'static str,
        /// The end of its log.
        log_end: String,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

/// A running cluster. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Cassandra {
    /// Dropped before the folder that they write to.
    nodes: Vec<Node>,
    locks: Option<Locks>,
    folder: TempDir,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    process: Owned,
    address: Ipv4Addr,
    configuration: NodeConfiguration,
    jars: PathBuf,
}

/// The replication factor of larger clusters.
const MOST_REPLICAS: usize = 3;

impl Cassandra {
    /// Starts a cluster of so many nodes without passwords. [`Plan`] has other options.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(nodes: u8, target: &Path) -> Result<Self, StartError> {
        Plan::of(nodes).start(target)
    }

    /// The folder with certificates and keys, if the cluster is locked: the authority `authority.pem`, which
    /// signed the nodes' certificates (for their addresses and `nodes.vvm.test`) and `client.pem` with
    /// `client.key`; and another authority, `stranger.pem`, which signed `strange-client.pem` with
    /// `strange-client.key`.
    pub fn locks(&self) -> Option<&Path> {
        self.locks.as_ref().map(Locks::folder)
    }

    /// The addresses of all nodes, separated by commas.
    pub fn contact_points(&self) -> String {
        let points = self.nodes.iter().map(|node| format!("{}:{CLIENT_PORT}", node.address));
        points.collect::<Vec<_>>().join(",")
    }

    /// The URL of a keyspace with a replica on each node, at most three.
    pub fn url(&self, keyspace: &str) -> String {
        let replicas = self.nodes.len().min(MOST_REPLICAS);
        format!("scylla://{}/{keyspace}?replication={replicas}", self.contact_points())
    }

    fn wait_until_joined(&self) -> Result<(), StartError> {
        let addresses: Vec<_> = self.nodes.iter().map(Node::client_address).collect();
        if owned::wait_until(START_TIMEOUT, || Ok::<_, StartError>(ring::is_complete(&addresses)))? {
            return Ok(());
        }
        let (address, log_end) = (self.nodes[0].address, self.nodes[0].process.log_end());
        Err(StartError::Node { address, how: "and the others have not found each other", log_end })
    }

    /// Its nodes.
    pub fn nodes(&mut self) -> &mut [Node] {
        &mut self.nodes
    }
}

impl Node {
    /// Its address for clients.
    pub fn client_address(&self) -> SocketAddr {
        SocketAddr::from((self.address, CLIENT_PORT))
    }

    /// Stops it (`SIGSTOP`): it answers no request, and its connections stay open.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Continues it (`SIGCONT`).
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Kills it.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.signal(Signal::KILL)
    }

    /// Starts it again with its data after it has ended, and waits until it answers.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_again(&mut self) -> Result<(), StartError> {
        let has_ended =
            owned::wait_until(START_TIMEOUT, || self.process.ended().map(|ended| ended.is_some()));
        if !has_ended.map_err(system("java"))? {
            let log_end = self.process.log_end();
            return Err(StartError::Node { address: self.address, how: "has not ended", log_end });
        }
        self.process = launch(&self.jars, &self.configuration)?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let address = self.client_address();
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = self.process.ended().map_err(system("java"))?.is_some();
            Ok::<_, StartError>(has_ended || TcpStream::connect(address).is_ok())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(()),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Node { address: self.address, how, log_end: self.process.log_end() })
    }
}

fn launch(jars: &Path, configuration: &NodeConfiguration) -> Result<Owned, StartError> {
    let mut command = command(jars, configuration).map_err(system("java"))?;
    if !configuration.ahead.is_zero() {
        move_ahead(&mut command, configuration.ahead)?;
    }
    Owned::start(command, &configuration.folder.join("log")).map_err(system("java"))
}

/// Warnings and errors only.
const LOG_CONFIGURATION: &str = "<configuration>\
    <appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\
    <encoder><pattern>%level %date %logger: %msg%n</pattern></encoder></appender>\
    <root level=\"WARN\"><appender-ref ref=\"OUT\"/></root></configuration>\n";

#[derive(Debug)]
struct NodeConfiguration {
    folder: PathBuf,
    address: Ipv4Addr,
    /// The node that introduces the others.
    seed: Ipv4Addr,
    token: i64,
    /// How far its wall clock is ahead of the machine's.
    ahead: Duration,
    /// Whether clocks of the cluster differ.
    clocks_differ: bool,
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
             internode_timeout: {}\n\
             {}",
            // The default is true. With false, the age of a message counts from its arrival and not from
            // its sender's clock, as docs/storages/cassandra.md advises where clocks differ.
            !self.clocks_differ,
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

fn command(jars: &Path, node: &NodeConfiguration) -> io::Result<Command> {
    let mut java = owned::command("java")?;
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
    Ok(java)
}

const ARTIFACT: Artifact =
    Artifact { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.5" };

/// The plan of a cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    nodes: u8,
    ahead: Duration,
    is_locked: bool,
}

impl Plan {
    /// So many nodes without passwords.
    pub fn of(nodes: u8) -> Self {
        Self { nodes, ahead: Duration::ZERO, is_locked: false }
    }

    /// Moves the last node's wall clock ahead of the others. Needs Debian's package `faketime`.
    pub fn with_a_clock_ahead(self, ahead: Duration) -> Self {
        Self { ahead, ..self }
    }

    /// Requires a certificate and a password. User and password are `cassandra`; certificates are in
    /// [`Cassandra::locks`].
    pub fn locked(self) -> Self {
        Self { is_locked: true, ..self }
    }

    /// How far the last node's clock is ahead.
    pub fn ahead(&self) -> Duration {
        self.ahead
    }

    /// Starts it, from jars that are fetched once into `target`.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start(&self, target: &Path) -> Result<Cassandra, StartError> {
        let jars = jars::fetch(ARTIFACT, target)?;
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
                ahead: if index + 1 == addresses.len() { self.ahead } else { Duration::ZERO },
                clocks_differ: !self.ahead.is_zero(),
                locks: cluster.locks.clone(),
            };
            configuration.write().map_err(system("a node's configuration"))?;
            let process = launch(&jars, &configuration)?;
            cluster.nodes.push(Node { process, address, configuration, jars: jars.clone() });
            // The first node introduces the others, which may start together.
            if index == 0 {
                cluster.nodes[0].wait_until_ready()?;
            }
        }
        cluster.nodes.iter_mut().try_for_each(Node::wait_until_ready)?;
        // A locked node answers only clients with a certificate.
        if !self.is_locked {
            cluster.wait_until_joined()?;
        }
        Ok(cluster)
    }
}

/// For people.
impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes {
            1 => out.write_str("one node")?,
            nodes => write!(out, "{nodes} nodes")?,
        }
        if !self.ahead.is_zero() {
            write!(out, ", one with its clock {} s ahead", self.ahead.as_secs())?;
        }
        Ok(())
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

/// Returns the beginning of a node's part of the ring, which is divided into equal parts.
fn token(index: usize, count: usize) -> i64 {
    let part = u64::MAX / count as u64;
    i64::MIN.wrapping_add_unsigned(part * index as u64)
}

/// Where the library may be: Debian and what comes from it, for each architecture; Fedora and others.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
    "/usr/local/lib/faketime",
    "/opt/homebrew/lib/faketime",
];

/// The variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// The clock can't be moved.
#[derive(Debug, thiserror::Error)]
#[error("{LIBRARY} is missing, which moves a node's clock: install Debian's package `faketime`")]
pub struct FaketimeMissing;

/// Lets the program see a wall clock that is ahead by so much. Its other clocks stay as they are.
fn move_ahead(command: &mut Command, ahead: Duration) -> Result<(), FaketimeMissing> {
    let library = FOLDERS.iter().map(|folder| PathBuf::from(folder).join(LIBRARY));
    let library = library.into_iter().find(|path| path.exists()).ok_or(FaketimeMissing)?;
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", format!("+{}", ahead.as_secs_f64()))
        // The JVM waits by this clock; the name depends on the version.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        // Mends waits by that clock where it is faked. Where it isn't, every wait of the JVM would end at
        // once.
        .env("FAKETIME_FORCE_MONOTONIC_FIX", "0");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::token;

    #[test]
    fn tokens_divide_the_ring() {
        assert_eq!(
            [0, 1, 2].map(|index| token(index, 3)),
            [i64::MIN, -3074457345618258603, 3074457345618258602]
        );
    }
}
