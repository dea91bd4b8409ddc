//! `cargo xtask dist`: `dist/dist.py` builds what a release has, compares it and tries it. Python's own library writes
//! archives, so that no other command waits for the build of what does.

use crate::workspace::Workspace;
use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

/// Returns Python. It leaves no files of its own, which would be changes of the work tree.
fn python() -> Command {
    let mut python = Command::new("python3");
    python.arg("-B");
    python
}

/// Becomes that program, so that signals reach it. Returns only if it can't be started.
pub(crate) fn run(arguments: &[OsString]) -> bool {
    let root = match Workspace::read() {
        Ok(workspace) => workspace.root,
        Err(error) => {
            eprintln!("dist: {error}");
            return false;
        }
    };
    let program = root.join("xtask/src/dist/dist.py");
    let error = python().arg(program).args(arguments).current_dir(root).exec();
    eprintln!("dist: `python3` can't be started: {error}. Install Python, 3.9 or later");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_keeps_what_its_own_tests_say() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dist");
        match python().args(["-m", "unittest"]).current_dir(folder).output() {
            Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
            Err(error) => println!("left out: `python3` can't be started: {error}"),
        }
    }
}
