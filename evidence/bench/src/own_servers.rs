//! Servers of one's own to measure on: started for the run, and gone with it.

use servers::owned;
use std::{env, io, path::PathBuf};

#[cfg(feature = "scylla")]
pub(crate) use cluster::Cluster;
#[cfg(feature = "dynamodb")]
pub(crate) use local::on_dynamodb_local;

/// Where cargo builds: servers are kept there.
fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// This program starts itself as the guard of each server. `Some` if it is one, and could not become it.
pub(crate) fn guard() -> Option<io::Error> {
    let mut arguments = env::args_os().skip(1);
    let is_guard = arguments.next().is_some_and(|first| first == owned::GUARD);
    is_guard.then(|| owned::become_command(arguments))
}

#[cfg(feature = "scylla")]
mod cluster {
    use servers::cassandra::{Cassandra, StartError};
    use std::num::NonZeroU8;

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
            Ok(Self { nodes, cassandra: Cassandra::start(nodes.get(), &super::target())? })
        }

        /// A keyspace of it that is not there yet.
        pub(crate) fn url(&self) -> String {
            let replicas = self.nodes.get().min(MOST_REPLICAS);
            format!("scylla://{}/bench?replication={replicas}", self.cassandra.contact_points())
        }
    }
}

#[cfg(feature = "dynamodb")]
mod local {
    use servers::dynamodb::DynamoDbLocal;
    use std::{env, error::Error, process::Command};

    /// Starts DynamoDB Local and, as a process that has credentials for it, this program on it, with `options`.
    pub(crate) fn on_dynamodb_local(options: &[&str]) -> Result<(), Box<dyn Error>> {
        let server = DynamoDbLocal::start(&super::target())?;
        let mut bench = Command::new(env::current_exe()?);
        let url = format!("dynamodb://eu-west-1/bench?endpoint={}", server.endpoint());
        // It takes any.
        bench.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
        match bench.args(["--storage", &url]).args(options).status()? {
            status if status.success() => Ok(()),
            status => Err(format!("measuring on DynamoDB Local ended with {status}").into()),
        }
    }
}
