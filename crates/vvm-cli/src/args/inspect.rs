//! The commands that only read: `vvm status`, `vvm watch`, `vvm doctor`, `vvm history`.

use super::{
    target::TargetArgs,
    values::{InvalidValue, parse_duration, parse_slots, parse_ttl},
};
use clap::Args;
use ielections::Ttl;
use std::{error::Error, num::NonZeroU32, time::Duration};

/// Show which process leads each slot.
///
/// A slot is led if its record was written less than its TTL ago, and stale if not. If the storage can't
/// prove the age of a record, this command waits for the next renewal: a healthy leader renews after a
/// quarter of the TTL, and after a TTL without a renewal the slot is stale. A free slot shows the epoch of
/// its last leadership.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm status --storage sqlite:/var/lib/payroll/leader.db --name payroll --json

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused or can't be reached; 71 the system refused. With --exit-status, the
worst slot counts: 0 led; 1 free, or the name is paused; 2 stale; 3 held, with
--no-wait")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Don't wait for renewals: a slot is "held" if the age of its record is unknown
    #[arg(long)]
    pub(crate) no_wait: bool,
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

/// Watch the leaders: live on a terminal, otherwise one line for each change.
///
/// It only reads, and sees what a standby sees: records and their renewals. It shows when a renewal was last
/// seen, and what that leaves of the TTL before a standby may take over. The time that a leader has left is
/// known to the leader alone (--http, /metrics). A crash shows as renewals that stop.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm watch --storage sqlite:/var/lib/payroll/leader.db --name payroll

On a terminal, q or Ctrl-C quits. NO_COLOR is respected.

Exit status: 0; 64 wrong arguments; 66 no such storage; 69 the storage refused;
71 the system refused")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How often to read the storage
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_poll)]
    pub(crate) interval: Duration,
    /// Print one JSON object a line for each change
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_poll(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) {
        return Err(
            InvalidValue("write 100ms or more: each read costs the storage as much as a standby's").into()
        );
    }
    Ok(interval)
}

/// Examine whether this machine and its connection to the storage are fit to lead.
///
/// Measures reads and conditional writes, on a record of its own that no candidate can lead, and compares
/// them with the time that the TTL leaves. Checks clocks, limits, levels of containment, and an SQLite file
/// that does not exist yet by a temporary file beside it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm doctor --storage sqlite:/var/lib/payroll/leader.db --name payroll --ttl 10s

Exit status: 0 fit to lead; 1 there are problems; 64 wrong arguments;
66 no such storage; 69 the storage refused; 71 the system refused")]
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

/// Show past leaderships: the last 64 of each slot, with their leaders, times and ends.
///
/// Leaders of vvm run, vvm elect and programs with a vvm_host::Host write it beside their record. Programs
/// that lead without a Host write nothing. Times are those of the leaders' wall clocks.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm history --storage sqlite:/var/lib/payroll/leader.db --name payroll

Exit status: 0; 64 wrong arguments; 66 no such storage or name; 69 the storage
refused; 71 the system refused; 75 this storage keeps no history")]
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
