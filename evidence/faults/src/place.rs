//! Where the vvm program is that cargo built.

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// The vvm program.
pub(crate) fn vvm(told: Option<PathBuf>) -> io::Result<PathBuf> {
    let vvm = match told {
        Some(vvm) => vvm,
        None => env::current_exe()?.with_file_name("vvm"),
    };
    if !Path::exists(&vvm) {
        let hint = format!("{} is missing: `cargo xtask test-drivers --story` builds it", vvm.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, hint));
    }
    Ok(vvm)
}
