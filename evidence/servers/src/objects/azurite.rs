//! Azurite, Microsoft's emulator of Azure Storage, from npm.

use crate::{
    built::{BuildError, NpmPackage},
    owned,
};
use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(super) const NAME: &str = "Azurite 3.35.0";

/// The newest version that Node 20 runs.
const PACKAGE: NpmPackage = NpmPackage { name: "azurite", version: "3.35.0" };

/// Of its one account, which is documented.
const ACCOUNT: &str = "devstoreaccount1";
pub(super) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(super) fn fetch() -> Result<PathBuf, BuildError> {
    PACKAGE.fetch()
}

/// The folder with its data has to follow.
pub(super) fn command(package: &Path, address: SocketAddr) -> io::Result<Command> {
    let mut node = owned::command("node")?;
    node.arg(package.join("node_modules/azurite/dist/src/blob/main.js"));
    // Versions of the interface that it does not know are new, and change nothing of what is used here.
    node.args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
    node.args(["--blobHost", &address.ip().to_string(), "--blobPort", &address.port().to_string()]);
    node.arg("--location");
    Ok(node)
}

/// Makes the container, unless it is there. Whether it is.
pub(super) fn makes_container(address: SocketAddr, container: &str) -> bool {
    let mut node = Command::new("node");
    node.args(["-e", include_str!("container.js"), &address.to_string(), ACCOUNT, KEY, container]);
    node.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

pub(super) fn url(container: &str, prefix: &str, address: SocketAddr) -> String {
    format!("az://{container}/{prefix}?account={ACCOUNT}&endpoint=http://{address}/{ACCOUNT}")
}
