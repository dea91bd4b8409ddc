//! `vvm init-storage`: creates the file, table or keyspace of a storage.

use crate::{args::parse_any_storage, inspection::InspectionError, runtime};
use clap::Args;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};
use vvm_clock::{Clock, SystemClock};
use vvm_host::operate::InspectError;
use vvm_storage::{StorageUrl, url::file_and_owner};

/// Create what a storage needs before its first use: a schema, tables, a keyspace, or a mark of its own.
///
/// Needs to run once per storage, by a user with the permission to create them. May be repeated, also
/// concurrently: what exists is checked and left unchanged. SQLite files do not need it. On etcd and in a bucket it
/// writes one key or object; on Kubernetes it creates nothing, and checks the rights.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm init-storage --storage 'scylla://host1,host2/elections?replication=3'
  vvm init-storage --storage dynamodb://eu-west-1/elections
  vvm init-storage --storage 'postgres://vvm@db1,db2/elections?max_ttl=60s'
  vvm init-storage --storage mysql://vvm@db1,db2/elections
  vvm init-storage --storage etcd://etcd1,etcd2,etcd3/elections
  vvm init-storage --storage k8s://batch
  vvm init-storage --storage 's3://bucket/elections?region=eu-west-1'

Exit status: 0; 64 wrong arguments; 69 the storage refused; 71 the system
refused")]
pub(crate) struct InitStorageArgs {
    /// The storage, as given to vvm run later. Also, for scylla: the number of copies (replication=N), and for
    /// postgres: and mysql: the largest TTL of any candidate (max_ttl=60s; run it again to raise it)
    #[arg(long, value_name = "URL", value_parser = parse_any_storage)]
    pub(crate) storage: String,
}

pub(crate) fn main(args: &InitStorageArgs) -> ExitCode {
    init(args).map_or_else(|refusal| InspectionError::from(refusal).conclude().into(), |()| ExitCode::SUCCESS)
}

fn init(args: &InitStorageArgs) -> Result<(), InspectError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start().map_err(InspectError::system)?);
    let url = args.storage.as_str();
    let existed = runtime::run(async {
        let mut existed = vvm_storage::url::exists(url)?;
        if existed && file_and_owner(url).is_none() {
            // A server was not asked yet.
            let opened = vvm_storage::open(url, clock).await;
            existed = opened.is_ok();
            if let Ok(storage) = opened {
                storage.close().await;
            }
        }
        vvm_storage::init_storage(url).await?;
        Ok::<_, InspectError>(existed)
    });
    let existed = existed.map_err(InspectError::system)??;
    let place = file_and_owner(url).unwrap_or_else(|| StorageUrl::from(url).to_string());
    let done = match existed {
        false => "created",
        true if url.contains("max_ttl=") => "exists already, and permits TTLs up to max_ttl:",
        true => "exists already:",
    };
    writeln!(io::stdout(), "{done} {place}").map_err(InspectError::Output)
}
