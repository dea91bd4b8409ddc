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

/// Where clients come. Every node has an address of its own, so that all have this port.
const CLIENT_PORT: u16 = 9042;

/// Where nodes come.
const NODE_PORT: u16 = 7000;

/// Ready within 8 s on two quiet cores; a machine under load takes its time.
const PATIENCE: Duration = Duration::from_secs(180);

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No jars.
    #[error(transparent)]
    Jars(#[from] JarsError),
    /// A node's clock can't be moved.
    #[error(transparent)]
    Faketime(#[from] FaketimeMissing),
    /// A file or a process is not to be had.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        cause: io::Error,
    },
    /// A node ended, or did not answer in time.
    #[error("node {address} {how}. Its last words:\n{last_words}")]
    Node {
        /// Where it was to listen.
        address: Ipv4Addr,
        /// What became of it.
        how: &'static str,
        /// The end of its log.
        last_words: String,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

/// A running cluster. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Cassandra {
    /// Before the folder that they write to, which is dropped after them.
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

/// More replicas than that nobody has.
const MOST_REPLICAS: usize = 3;

impl Cassandra {
    /// Starts a cluster of so many nodes that let everybody in: [`Plan`] has the rest.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(nodes: u8, target: &Path) -> Result<Self, StartError> {
        Plan::of(nodes).start(target)
    }

    /// The folder with certificates and keys, if the cluster is locked: `authority.pem`, who signed the
    /// nodes' certificates (for their addresses and `nodes.vvm.test`) and `client.pem` with `client.key`;
    /// `stranger.pem`, who signed `strange-client.pem` with `strange-client.key`.
    pub fn locks(&self) -> Option<&Path> {
        self.locks.as_ref().map(Locks::folder)
    }

    /// Where clients begin.
    pub fn contact_points(&self) -> String {
        let points = self.nodes.iter().map(|node| format!("{}:{CLIENT_PORT}", node.address));
        points.collect::<Vec<_>>().join(",")
    }

    /// The address of a keyspace that is on all nodes, on three at most, for who creates it.
    pub fn url(&self, keyspace: &str) -> String {
        let replicas = self.nodes.len().min(MOST_REPLICAS);
        format!("scylla://{}/{keyspace}?replication={replicas}", self.contact_points())
    }

    fn wait_until_joined(&self) -> Result<(), StartError> {
        let addresses: Vec<_> = self.nodes.iter().map(Node::client_address).collect();
        if owned::wait_until(PATIENCE, || Ok::<_, StartError>(ring::is_complete(&addresses)))? {
            return Ok(());
        }
        let (address, last_words) = (self.nodes[0].address, self.nodes[0].process.last_words());
        Err(StartError::Node { address, how: "and the others have not found each other", last_words })
    }

    /// Its nodes.
    pub fn nodes(&mut self) -> &mut [Node] {
        &mut self.nodes
    }
}

impl Node {
    /// Where its clients come.
    pub fn client_address(&self) -> SocketAddr {
        SocketAddr::from((self.address, CLIENT_PORT))
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

    /// Starts it again after its end, with its data, and waits until it answers.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_again(&mut self) -> Result<(), StartError> {
        let has_ended = owned::wait_until(PATIENCE, || self.process.ended().map(|ended| ended.is_some()));
        if !has_ended.map_err(system("java"))? {
            let last_words = self.process.last_words();
            return Err(StartError::Node { address: self.address, how: "has not ended", last_words });
        }
        self.process = launch(&self.jars, &self.configuration)?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let address = self.client_address();
        let mut has_ended = false;
        let is_ready = owned::wait_until(PATIENCE, || {
            has_ended = self.process.ended().map_err(system("java"))?.is_some();
            Ok::<_, StartError>(has_ended || TcpStream::connect(address).is_ok())
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(()),
            (_, true) => "has ended",
            (false, false) => "does not answer",
        };
        Err(StartError::Node { address: self.address, how, last_words: self.process.last_words() })
    }
}

fn launch(jars: &Path, configuration: &NodeConfiguration) -> Result<Owned, StartError> {
    let mut command = java::command(jars, configuration).map_err(system("java"))?;
    if !configuration.ahead.is_zero() {
        faketime::move_ahead(&mut command, configuration.ahead)?;
    }
    Owned::start(command, &configuration.folder.join("log")).map_err(system("java"))
}
