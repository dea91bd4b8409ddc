//! What cluster is to be started, and starting it.

use super::{
    CLIENT_PORT, Cassandra, NODE_PORT, Node, StartError, configuration::NodeConfiguration, launch,
    locks::Locks, system,
};
use crate::jars::{self, Artifact};
use std::{
    fmt, io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::Duration,
};
use tempfile::TempDir;

const ARTIFACT: Artifact =
    Artifact { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.5" };

/// What cluster is to be started.
#[derive(Clone, Debug)]
pub struct Plan {
    nodes: u8,
    ahead: Duration,
    is_locked: bool,
}

impl Plan {
    /// So many nodes that let everybody in.
    pub fn of(nodes: u8) -> Self {
        Self { nodes, ahead: Duration::ZERO, is_locked: false }
    }

    /// The last node's wall clock is ahead of the others by so much (Debian's package `faketime` has to be
    /// there).
    pub fn with_a_clock_ahead(self, ahead: Duration) -> Self {
        Self { ahead, ..self }
    }

    /// Only who has a certificate and a password is let in: user and password are `cassandra`, and
    /// certificates are in [`Cassandra::locks`].
    pub fn locked(self) -> Self {
        Self { is_locked: true, ..self }
    }

    /// By how much the last node's clock is ahead.
    pub fn ahead(&self) -> Duration {
        self.ahead
    }

    /// Starts it, from jars that are fetched once into `target`.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
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
            // The others find the ring through the first; after that they may come together.
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
            write!(out, ", one with its clock {:?} ahead", self.ahead)?;
        }
        Ok(())
    }
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
