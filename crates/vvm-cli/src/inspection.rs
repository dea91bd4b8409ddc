//! Opens a storage for one operator command, on a runtime of its own.

use crate::{announce::say, async_runtime};
use ielections::TtlStorage as _;
use std::io;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

/// Prints `error` and returns the exit status. A closed pipe, as of `head`, is no error.
pub(crate) fn conclude(error: &InspectError) -> u8 {
    if matches!(error, InspectError::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe) {
        return 0;
    }
    say!("{error}");
    error.status()
}

/// Opens the storage at `url`, runs `act` with it, and closes it.
///
/// # Errors
/// [`InspectError`], as part of the error of `act`.
pub(crate) fn inspect<T, E: From<InspectError>>(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<T, E>,
) -> Result<T, E> {
    let runtime = async_runtime::start().map_err(InspectError::system)?;
    runtime.block_on(async {
        let inspector = StorageInspector::open(url, name, purpose).await?;
        let done = act(&inspector).await;
        inspector.storage.close().await;
        done
    })
}
