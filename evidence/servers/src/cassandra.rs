//! Apache Cassandra 5.0.5: one node, or three that replicate.

mod configuration;
mod java;

use crate::{
    jars::{self, Artifact, JarsError},
    owned::{self, Owned},
};
use configuration::NodeConfiguration;
use rustix::process::Signal;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

const ARTIFACT: Artifact =
    Artifact { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.5" };

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
    _folder: TempDir,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    process: Owned,
    address: Ipv4Addr,
    configuration: NodeConfiguration,
    jars: PathBuf,
}

impl Cassandra {
    /// Starts a cluster of so many nodes, from jars that are fetched once into `target`.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(nodes: u8, target: &Path) -> Result<Self, StartError> {
        let jars = jars::fetch(ARTIFACT, target)?;
        let folder = TempDir::with_prefix("cassandra-").map_err(system("a temporary folder"))?;
        let addresses = free_addresses(nodes)?;
        let mut cluster = Self { nodes: Vec::new(), _folder: folder };
        for (index, &address) in addresses.iter().enumerate() {
            let configuration = NodeConfiguration {
                folder: cluster._folder.path().join(format!("node-{}", index + 1)),
                address,
                seed: addresses[0],
                token: token(index, addresses.len()),
            };
            configuration.write().map_err(system("a node's configuration"))?;
            let process = launch(&jars, &configuration)?;
            cluster.nodes.push(Node { process, address, configuration, jars: jars.clone() });
            // The others find the ring through the first; after that they may come together.
            if index == 0 {
                cluster.nodes[0].wait_until_ready()?;
            }
        }
        cluster.nodes.iter_mut().try_for_each(Node::wait_until_ready)?;
        Ok(cluster)
    }

    /// Where clients begin.
    pub fn contact_points(&self) -> String {
        let points = self.nodes.iter().map(|node| format!("{}:{CLIENT_PORT}", node.address));
        points.collect::<Vec<_>>().join(",")
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
    let command = java::command(jars, configuration).map_err(system("java"))?;
    Owned::start(command, &configuration.folder.join("log")).map_err(system("java"))
}

/// Addresses of this machine alone, next to each other, on which nobody has the ports of a node.
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
    Err(system("addresses of this machine alone (127.0.0.0/8)")(last))
}

/// Where a node's part of the ring begins: as many equal parts as there are nodes.
fn token(index: usize, count: usize) -> i64 {
    let part = u64::MAX / count as u64;
    i64::MIN.wrapping_add_unsigned(part * index as u64)
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
