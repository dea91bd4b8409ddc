//! `vvm status`.

use super::values::{parse_name, parse_storage};
use clap::Args;

/// Show who leads which slot.
///
/// A slot is held as long as a record stands in it: a leader that died a moment ago is still shown, until
/// another one takes its slot over. A free slot shows the epoch of its last leadership.
#[derive(Clone, Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// As JSON: one array with an object for each slot
    #[arg(long)]
    pub(crate) json: bool,
    /// Also the instances of primary-only services: what their documents say
    #[arg(long)]
    pub(crate) instances: bool,
}

const STATUS_HELP: &str = "\
Example:
  vvm status --storage sqlite:/var/lib/payroll/leader.db --name payroll --json

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused; 71 the system refused";
