//! `vvm history`.

use super::values::{parse_name, parse_slots, parse_storage};
use clap::Args;
use std::num::NonZeroU32;

/// Show who led when, and how it ended: the last 64 leaderships of each slot.
///
/// Leaders of vvm run write it, beside their record, when nothing else is waiting. Times are those of their
/// wall clocks.
#[derive(Clone, Debug, Args)]
#[command(after_help = HISTORY_HELP)]
pub(crate) struct HistoryArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
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
