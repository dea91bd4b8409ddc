//! A cluster of one's own to measure on: started for the run, and gone with it.

use servers::{
    cassandra::{Cassandra, StartError},
    owned,
};
use std::{env, io, num::NonZeroU8, path::PathBuf};

/// More replicas than that nobody has.
const MOST_REPLICAS: u8 = 3;

/// Nodes of Apache Cassandra, and how to reach them.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: NonZeroU8,
    cassandra: Cassandra,
}

impl Cluster {
    pub(crate) fn start(nodes: NonZeroU8) -> Result<Self, StartError> {
        // Where cargo builds: servers are kept there.
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        Ok(Self { nodes, cassandra: Cassandra::start(nodes.get(), &target)? })
    }

    /// A keyspace of it that is not there yet.
    pub(crate) fn url(&self) -> String {
        let replicas = self.nodes.get().min(MOST_REPLICAS);
        format!("scylla://{}/bench?replication={replicas}", self.cassandra.contact_points())
    }
}

/// This program starts itself as the guard of each node. `Some` if it is one, and could not become it.
pub(crate) fn guard() -> Option<io::Error> {
    let mut arguments = env::args_os().skip(1);
    let is_guard = arguments.next().is_some_and(|first| first == owned::GUARD);
    is_guard.then(|| owned::become_command(arguments))
}
