//! Which storage, and which name in it. `vvm init-storage`.

use super::values::{parse_any_storage, parse_name, parse_storage, parse_ttl};
use clap::Args;
use ielections::Ttl;

#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// The storage of the candidates, as given to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// The name that the candidates compete for, as given to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
}

impl TargetArgs {
    /// Returns storage and name.
    pub(crate) fn pair(&self) -> (&str, &str) {
        (&self.storage, &self.name)
    }
}

/// Create the keyspace and table that a storage on a cluster needs.
///
/// Needs to run once per storage, by a user with the permission to create them. May be repeated, also
/// concurrently: what exists is checked and left unchanged. SQLite files do not need it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm init-storage --storage 'scylla://host1,host2/elections?replication=3'
  vvm init-storage --storage dynamodb://eu-west-1/elections
  vvm init-storage --storage postgres://vvm@db1,db2/elections --max-ttl 60s
  vvm init-storage --storage etcd://etcd1,etcd2,etcd3/elections
  vvm init-storage --storage k8s://batch
  vvm init-storage --storage 's3://bucket/elections?region=eu-west-1'

Exit status: 0; 64 wrong arguments; 69 the storage refused; 71 the system
refused")]
pub(crate) struct InitStorageArgs {
    /// The storage, as given to vvm run later; replication=N sets the number of copies
    #[arg(long, value_name = "URL", value_parser = parse_any_storage)]
    pub(crate) storage: String,
    /// The largest TTL of any candidate, for postgres: (default 20s; run it again to raise it)
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub(crate) max_ttl: Option<Ttl>,
}
