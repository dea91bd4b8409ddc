//! The location of the vvm program.

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// Returns the vvm program.
pub(crate) fn vvm(given: Option<PathBuf>) -> io::Result<PathBuf> {
    let vvm = match given {
        Some(vvm) => vvm,
        None => env::current_exe()?.with_file_name("vvm"),
    };
    if !Path::exists(&vvm) {
        let hint = format!("{} is missing: `cargo xtask test-drivers --story` builds it", vvm.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, hint));
    }
    Ok(vvm)
}
