//! A node that lives in the future: `faketime`, a library that the loader puts before the system's own.

use std::{path::PathBuf, process::Command, time::Duration};

/// Where the library may be: Debian and what comes from it, for each architecture; Fedora and others.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
    "/usr/local/lib/faketime",
    "/opt/homebrew/lib/faketime",
];

/// The variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// The clock can't be moved.
#[derive(Debug, thiserror::Error)]
#[error("{LIBRARY} is missing, which moves a node's clock: install Debian's package `faketime`")]
pub struct FaketimeMissing;

/// Lets the program see a wall clock that is ahead by so much. Its other clocks stay as they are.
pub(super) fn move_ahead(command: &mut Command, ahead: Duration) -> Result<(), FaketimeMissing> {
    let library = FOLDERS.iter().map(|folder| PathBuf::from(folder).join(LIBRARY));
    let library = library.into_iter().find(|path| path.exists()).ok_or(FaketimeMissing)?;
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", format!("+{}", ahead.as_secs_f64()))
        // The JVM waits by this clock; the name depends on the version.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        // Mends waits by that clock where it is faked. Where it isn't, every wait of the JVM would end at
        // once.
        .env("FAKETIME_FORCE_MONOTONIC_FIX", "0");
    Ok(())
}
