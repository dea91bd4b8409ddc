//! `vvm init-storage`.

use super::values::parse_any_storage;
use clap::Args;

/// Create the keyspace and table that a storage on a cluster needs.
///
/// Needs to run once per storage, by a user with the permission to create them. May be repeated, also
/// concurrently: what exists is checked and left unchanged. SQLite files do not need it.
#[derive(Clone, Debug, Args)]
#[command(after_help = INIT_STORAGE_HELP)]
pub(crate) struct InitStorageArgs {
    /// The storage, as given to vvm run later; replication=N sets the number of copies
    #[arg(long, value_name = "URL", value_parser = parse_any_storage)]
    pub(crate) storage: String,
}

const INIT_STORAGE_HELP: &str = "\
Example:
  vvm init-storage --storage 'scylla://host1,host2/elections?replication=3'
  vvm init-storage --storage dynamodb://eu-west-1/elections
  vvm init-storage --storage postgres://vvm@db1,db2/elections

Exit status: 0; 64 wrong arguments; 69 the storage refused; 71 the system
refused";
