//! `vvm status`.

use super::target::TargetArgs;
use clap::Args;

/// Show which process leads each slot.
///
/// A slot is led if its record was written less than its TTL ago, and stale if not. Its state is unknown if
/// the storage can't prove the age of the record: --wait finds out. A free slot shows the epoch of its last
/// leadership.
#[derive(Clone, Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Observe records of unknown age until each is renewed, or has stood for its TTL
    #[arg(long)]
    pub(crate) wait: bool,
    /// For monitoring: exit with the state of the worst slot (see below)
    #[arg(long)]
    pub(crate) exit_status: bool,
    /// As JSON: one array with an object for each slot
    #[arg(long)]
    pub(crate) json: bool,
    /// Also show the documents of the instances of primary-only services
    #[arg(long)]
    pub(crate) instances: bool,
}

const STATUS_HELP: &str = "\
Example:
  vvm status --storage sqlite:/var/lib/payroll/leader.db --name payroll --json

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused or can't be reached; 71 the system refused. With --exit-status, the
worst slot counts: 0 led; 1 free, or the name is paused; 2 stale; 3 unknown";
