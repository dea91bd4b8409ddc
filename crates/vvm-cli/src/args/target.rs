//! The options of operator commands: which storage, which name, and how to wake candidates.

use super::values::{parse_name, parse_storage};
use clap::Args;
use vvm_host::LocalDir;

#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// The storage of the candidates, as given to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// The name that the candidates compete for, as given to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
}

impl TargetArgs {
    /// Returns storage and name.
    pub(crate) fn pair(&self) -> (&str, &str) {
        (&self.storage, &self.name)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WakeArgs {
    /// Folder of sockets that wakes the candidates of this user on this machine, or none
    /// [default: /tmp/vvm-UID]
    ///
    /// Candidates that are not woken see the request within a second. Safety does not depend on it.
    // The folder may be unfit: then no candidate is woken.
    #[arg(long, value_name = "DIR|none", value_parser = str::parse::<LocalDir>)]
    pub(crate) local_dir: Option<LocalDir>,
}
