//! `vvm history`.

use super::{target::TargetArgs, values::parse_slots};
use clap::Args;
use std::num::NonZeroU32;

/// Show past leaderships: the last 64 of each slot, with their leaders, times and ends.
///
/// Leaders of vvm run, vvm elect and programs with a vvm_host::Host write it beside their record. Programs
/// that lead without a Host write nothing. Times are those of the leaders' wall clocks.
#[derive(Clone, Debug, Args)]
#[command(after_help = HISTORY_HELP)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Only this slot
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub(crate) slot: Option<NonZeroU32>,
    /// As JSON: one array with an object for each leadership
    #[arg(long)]
    pub(crate) json: bool,
}

const HISTORY_HELP: &str = "\
Example:
  vvm history --storage sqlite:/var/lib/payroll/leader.db --name payroll

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused; 71 the system refused; 75 this storage keeps no history";
