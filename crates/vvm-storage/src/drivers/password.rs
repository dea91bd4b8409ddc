//! The password of a login, for drivers: from a file, or from the environment.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// The environment variable with the password.
pub(super) const PASSWORD: &str = "VVM_STORAGE_PASSWORD";

/// The first line of `file`, else the environment variable; `None` if it is empty or missing. Fails with the
/// file that can't be read.
pub(super) fn password(file: Option<&Path>) -> Result<Option<String>, (PathBuf, io::Error)> {
    let password = match file {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|cause| (path.to_owned(), cause))?;
            text.lines().next().map(str::to_owned)
        }
        None => env::var(PASSWORD).ok(),
    };
    Ok(password.filter(|password| !password.is_empty()))
}
