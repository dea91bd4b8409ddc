//! `vvm watch`.

use super::{
    target::TargetArgs,
    values::{InvalidValue, parse_duration},
};
use clap::Args;
use std::{error::Error, time::Duration};

/// Watch the leaders: live on a terminal, otherwise one line for each change.
///
/// It only reads, and sees what a standby sees: records and their renewals. It shows when a renewal was last
/// seen, and what that leaves of the TTL before a standby may take over. The time that a leader has left is
/// known to the leader alone (--http, /metrics). A crash shows as renewals that stop.
#[derive(Clone, Debug, Args)]
#[command(after_help = WATCH_HELP)]
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

const WATCH_HELP: &str = "\
Example:
  vvm watch --storage sqlite:/var/lib/payroll/leader.db --name payroll

On a terminal, q or Ctrl-C quits. NO_COLOR is respected.

Exit status: 0; 64 wrong arguments; 66 no such storage; 69 the storage refused;
71 the system refused";

fn parse_poll(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) {
        return Err(
            InvalidValue("write 100ms or more: each read costs the storage as much as a standby's").into()
        );
    }
    Ok(interval)
}
