//! `vvm init-storage`.

use super::values::parse_any_storage;
use clap::Args;

/// Make a storage ready: create the keyspace and table that it needs on a cluster.
///
/// Once per storage, by whoever may create them. May be run again, and by many at once: what is there is
/// checked, and left as it is. A file needs none of this.
#[derive(Clone, Debug, Args)]
#[command(after_help = INIT_STORAGE_HELP)]
pub(crate) struct InitStorageArgs {
    /// Where leadership is to be recorded, as told to vvm run; replication=N says how many copies there shall
    /// be
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
