//! `vvm doctor`.

use super::values::{parse_name, parse_storage, parse_ttl};
use clap::Args;
use ielections::Ttl;

/// Examine this machine and its way to the storage: is it fit to lead?
///
/// Measures how long reads and conditional writes take from here, on a record of its own that nobody can
/// campaign for, and holds that against what the TTL leaves room for; looks at clocks, limits, and the levels
/// of containment to be had.
#[derive(Clone, Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// The TTL to hold the figures against, as told to vvm run
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// As JSON: one object
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_HELP: &str = "\
Example:
  vvm doctor --storage sqlite:/var/lib/payroll/leader.db --name payroll --ttl 10s

Exit status: 0 fit to lead; 1 there are problems, each said; 64 wrong arguments;
66 no such storage; 69 the storage refused; 71 the system refused";
