//! The password of a login, for drivers: from a file, from the URL, or from the environment.

use crate::open_error::OpenError;
use std::{env, fs, path::Path};

/// The environment variable with the password.
pub(super) const PASSWORD: &str = "VVM_STORAGE_PASSWORD";

/// The first line of `file`, else that of the URL, else the environment variable; `None` if it is empty or
/// missing. Read anew for each login, so that it can be changed.
pub(super) fn password(file: Option<&Path>, of_url: Option<&str>) -> Result<Option<String>, OpenError> {
    let password = match (file, of_url) {
        (Some(path), _) => read(path)?.lines().next().map(str::to_owned),
        (None, Some(password)) => Some(password.to_owned()),
        (None, None) => env::var(PASSWORD).ok(),
    };
    Ok(password.filter(|password| !password.is_empty()))
}

/// Reads a file with passwords.
pub(super) fn read(path: &Path) -> Result<String, OpenError> {
    fs::read_to_string(path).map_err(|cause| {
        OpenError::refused(format!("the password can't be read from {}: {cause}", path.display()))
    })
}

/// There is a user without a password.
#[cfg(any(feature = "etcd", feature = "scylla"))]
pub(super) fn missing() -> OpenError {
    OpenError::refused(format!(
        "there is no password: put it into the environment ({PASSWORD}) or a file (password_file=PATH)"
    ))
}
