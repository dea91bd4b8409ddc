//! `vvm doctor`.

use super::{target::TargetArgs, values::parse_ttl};
use clap::Args;
use ielections::Ttl;

/// Examine whether this machine and its connection to the storage are fit to lead.
///
/// Measures reads and conditional writes, on a record of its own that no candidate can lead, and compares
/// them with the time that the TTL leaves. Checks clocks, limits, levels of containment, and an SQLite file
/// that does not exist yet by a temporary file beside it.
#[derive(Clone, Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The TTL to compare the figures with, as in vvm run
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// As JSON: one object
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_HELP: &str = "\
Example:
  vvm doctor --storage sqlite:/var/lib/payroll/leader.db --name payroll --ttl 10s

Exit status: 0 fit to lead; 1 there are problems; 64 wrong arguments;
66 no such storage; 69 the storage refused; 71 the system refused";
