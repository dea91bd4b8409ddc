//! The Debian package, installed by dpkg into a root folder of its own.

use super::{fail_over, transcript::Transcript};
use crate::dist::draft::{DistError, write};
use std::{fs, path::Path, process::Command};

/// # Errors
/// It can't be installed, or what is installed does not work.
pub(super) fn run(transcript: &Transcript, package: &Path, scratch: &Path) -> Result<(), DistError> {
    transcript.show(Command::new("dpkg-deb").arg("--info").arg(package))?;
    let root = scratch.join("root");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        write(&root.join(file), b"")?;
    }
    // A user namespace, in which any user may give files to root.
    let mut install = Command::new("unshare");
    install.args(["--map-root-user", "dpkg"]).arg(of_root(&root));
    install.args(["--force-not-root", "--install"]).arg(package);
    transcript.show(&mut install)?;
    transcript.show(Command::new("dpkg").arg(of_root(&root)).args(["--listfiles", "vvm-cli"]))?;
    transcript.remark("The root folder has no library.");
    let alone = ["--map-root-user", "--root"];
    transcript.show(Command::new("unshare").args(alone).arg(&root).args(["/usr/bin/vvm", "--version"]))?;
    fail_over::run(transcript, &root.join("usr/bin/vvm"), scratch)
}

fn of_root(root: &Path) -> String {
    format!("--root={}", root.display())
}
