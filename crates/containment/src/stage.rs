//! The stages of this crate: re-executions of the same program as shim, keeper and so on.

use crate::{
    keeper,
    launch::StageError,
    namespace::{init, outside},
    shim,
};
use std::{ffi::OsString, process::ExitCode};

/// Runs the stage that the first argument names, and returns its exit status. Returns `None` at once in any
/// other process. Must be the first call in `main`, while the process has a single thread.
///
/// # Errors
/// If a stage can't begin. [`StageError::Abandoned`] needs no message.
pub fn enter() -> Result<Option<ExitCode>, StageError> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(stage) = arguments.next() else { return Ok(None) };
    let arguments = || arguments.collect::<Vec<OsString>>();
    let status = match stage.to_str() {
        Some(shim::STAGE) => shim::main(&arguments())?.into(),
        Some(keeper::STAGE) => keeper::main(&arguments())?.into(),
        Some(outside::STAGE) => outside::main(&arguments())?,
        Some(init::STAGE) => init::main(&arguments())?.into(),
        _ => return Ok(None),
    };
    Ok(Some(status))
}
