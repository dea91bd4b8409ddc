//! Where things are: what cargo built and what was fetched once.

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// Where cargo builds: servers are kept there.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

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
