//! `vvm init-storage`: creates the file, table or keyspace of a storage.

use crate::{args::InitStorageArgs, async_runtime, inspection::conclude};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};
use vvm_clock::{Clock, SystemClock};
use vvm_host::operate::InspectError;
use vvm_storage::{StorageUrl, url::file_and_owner};

pub(crate) fn main(args: &InitStorageArgs) -> ExitCode {
    init(args).map_or_else(|refusal| conclude(&refusal).into(), |()| ExitCode::SUCCESS)
}

fn init(args: &InitStorageArgs) -> Result<(), InspectError> {
    let runtime = async_runtime::start().map_err(InspectError::system)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start().map_err(InspectError::system)?);
    let mut url = args.storage.clone();
    if let Some(max_ttl) = args.max_ttl {
        let separator = if url.contains('?') { '&' } else { '?' };
        url += &format!("{separator}max_ttl={}ms", max_ttl.get().as_millis());
    }
    let existed = runtime.block_on(async {
        let mut existed = vvm_storage::url::exists(&url)?;
        if existed && file_and_owner(&url).is_none() {
            // A server was not asked yet.
            let opened = vvm_storage::open(&url, clock).await;
            existed = opened.is_ok();
            if let Ok(storage) = opened {
                storage.close().await;
            }
        }
        vvm_storage::init_storage(&url).await?;
        Ok::<_, InspectError>(existed)
    })?;
    let place = || StorageUrl::from(args.storage.as_str()).to_string();
    let place = file_and_owner(&url).unwrap_or_else(place);
    let done = if existed { "exists already:" } else { "created" };
    writeln!(io::stdout(), "{done} {place}").map_err(InspectError::Output)
}
