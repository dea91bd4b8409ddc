//! Commands that are not Rust: Python's library writes the archives of a release (`dist/dist.py`), and a shell sets up
//! surroundings (`surroundings.sh`).

use crate::workspace::Workspace;
use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

/// Python leaves no files of its own, which would be changes of the work tree.
pub(crate) const DIST: &[&str] = &["python3", "-B", "xtask/src/dist/dist.py"];
pub(crate) const SURROUNDINGS: &[&str] = &["bash", "xtask/src/surroundings.sh"];

/// Becomes a program with a script, so that signals reach it. Returns only if it can't be started.
pub(crate) fn become_script(words: &[&str], arguments: &[OsString]) -> bool {
    let Some(Workspace { root, .. }) = Workspace::read_for("xtask") else { return false };
    let error = Command::new(words[0]).args(&words[1..]).args(arguments).current_dir(root).exec();
    eprintln!("xtask: `{}` can't be started: {error}. Install it", words[0]);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_python_keep_what_their_own_tests_say() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dist");
        match Command::new(DIST[0]).args(["-B", "-m", "unittest"]).current_dir(folder).output() {
            Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
            Err(error) => println!("left out: `{}` can't be started: {error}", DIST[0]),
        }
    }
}
