//! `vvm init-storage`: creates the file, table or keyspace of a storage.

use crate::{args::InitStorageArgs, async_runtime, inspection::conclude};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};
use vvm_host::operate::InspectError;

pub(crate) fn main(args: &InitStorageArgs) -> ExitCode {
    init(args).map_or_else(|refusal| conclude(&refusal).into(), |()| ExitCode::SUCCESS)
}

fn init(args: &InitStorageArgs) -> Result<(), InspectError> {
    let runtime = async_runtime::start().map_err(InspectError::system)?;
    let existed = vvm_storage::url::exists(&args.storage)?;
    runtime.block_on(vvm_storage::init_storage(&args.storage))?;
    if let Some(file) = vvm_storage::url::file_and_owner(&args.storage) {
        let done = if existed { "exists already:" } else { "created" };
        writeln!(io::stdout(), "{done} {file}").map_err(InspectError::Output)?;
    }
    Ok(())
}
