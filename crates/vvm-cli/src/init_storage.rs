//! `vvm init-storage`: creates the file, table or keyspace of a storage.

use crate::{args::InitStorageArgs, async_runtime, inspection::conclude};
use std::process::ExitCode;
use vvm_host::operate::InspectError;

/// `vvm init-storage`.
pub(crate) fn main(args: &InitStorageArgs) -> ExitCode {
    init(args).map_or_else(|refusal| conclude(&refusal).into(), |()| ExitCode::SUCCESS)
}

fn init(args: &InitStorageArgs) -> Result<(), InspectError> {
    let runtime = async_runtime::start().map_err(InspectError::system)?;
    Ok(runtime.block_on(vvm_storage::init_storage(&args.storage))?)
}
