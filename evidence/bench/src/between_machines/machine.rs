//! A network namespace, reached over a pair of virtual interfaces.

use std::{io, process::Command};

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("`ip` could not be started: {0}; install Debian's package iproute2")]
    NoProgram(#[from] io::Error),
    #[error("no network namespace: `ip {0}` said: {1} (needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    Refused(String, String),
}

/// Dropping it removes the namespace, and with it the interfaces.
pub(crate) struct Machine {
    namespace: String,
    gateway: String,
}

impl Machine {
    /// Makes the one with this number, below 64.
    ///
    /// # Errors
    /// Without privileges, the error names the cause. Nothing is left.
    pub(crate) fn make(number: u8) -> Result<Self, MachineError> {
        let id = std::process::id();
        // Addresses for measurements (RFC 2544).
        let address = |host: u8| format!("198.18.{}.{}", id % 256, 4 * number + host);
        let namespace = format!("vvm{id}-{number}");
        ip(&format!("netns add {namespace}"))?;
        let machine = Self { namespace, gateway: address(1) };
        let (name, here) = (&machine.namespace, &machine.gateway);
        ip(&format!("link add {name} type veth peer name veth netns {name}"))?;
        ip(&format!("addr add {here}/30 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("-n {name} addr add {}/30 dev veth", address(2)))?;
        ip(&format!("-n {name} link set veth up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        Ok(machine)
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The address at which it reaches servers of the root namespace.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The pair is removed at once, while processes may still keep the namespace.
        let _gone = ip(&format!("link del {}", self.namespace));
        let _best_effort = ip(&format!("netns del {}", self.namespace));
    }
}

fn ip(arguments: &str) -> Result<(), MachineError> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MachineError::Refused(arguments.into(), said))
}
