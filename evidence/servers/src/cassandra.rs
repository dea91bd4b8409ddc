//! Apache Cassandra 5.0.5: one node, or three that replicate.

mod configuration;
mod faketime;
mod java;
mod locks;
mod plan;
mod ring;

pub use faketime::FaketimeMissing;
pub use plan::Plan;

use crate::{
    jars::JarsError,
    owned::{self, Owned},
};
use configuration::NodeConfiguration;
use locks::Locks;
use rustix::process::Signal;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
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
    let mut command = java::command(jars, configuration).map_err(system("java"))?;
    if !configuration.ahead.is_zero() {
        faketime::move_ahead(&mut command, configuration.ahead)?;
    }
    Owned::start(command, &configuration.folder.join("log")).map_err(system("java"))
}
