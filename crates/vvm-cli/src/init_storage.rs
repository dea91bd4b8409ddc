//! `vvm init-storage`: creates the file, table or keyspace of a storage.

use crate::{announce::say, args::InitStorageArgs, async_runtime, exit};
use std::{io, process::ExitCode};
use vvm_host::operate::ResourceLimit;

#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("--storage: {0}")]
    Storage(#[from] vvm_storage::OpenError),
    #[error(transparent)]
    System(ResourceLimit),
}

impl From<io::Error> for InitError {
    fn from(cause: io::Error) -> Self {
        Self::System(cause.into())
    }
}

/// `vvm init-storage`.
pub(crate) fn main(args: &InitStorageArgs) -> ExitCode {
    let Err(refusal) = init(args) else { return ExitCode::SUCCESS };
    say!("{refusal}");
    match &refusal {
        InitError::Storage(cause) if cause.is_misuse() => exit::MISUSE,
        InitError::Storage(cause) if cause.is_of_system() => exit::SYSTEM,
        InitError::Storage(_) => exit::STORAGE,
        InitError::System(_) => exit::SYSTEM,
    }
    .into()
}

fn init(args: &InitStorageArgs) -> Result<(), InitError> {
    let runtime = async_runtime::start()?;
    Ok(runtime.block_on(vvm_storage::init_storage(&args.storage))?)
}
