//! The plan of a cluster, and starting it.

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
