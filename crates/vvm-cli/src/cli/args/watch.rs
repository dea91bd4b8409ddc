//! `vvm watch`.

use super::values::{parse_duration, parse_name, parse_storage};
use clap::Args;
use std::time::Duration;

/// Watch who leads: live on a terminal, a line for each change elsewhere.
///
/// It only looks, and sees what any standby sees: records, and that they are renewed. How long a leader has
/// left is its own knowledge (--http, /metrics); what is shown here is how long ago a renewal was seen, and
/// what that leaves of the TTL, after which others may take over. A crash shows as renewals that stop.
#[derive(Clone, Debug, Args)]
#[command(after_help = WATCH_HELP)]
pub(crate) struct WatchArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// As JSON: one object a line for each change
    #[arg(long)]
    pub(crate) json: bool,
}

const WATCH_HELP: &str = "\
Example:
  vvm watch --storage sqlite:/var/lib/payroll/leader.db --name payroll

On a terminal: q or Ctrl-C leaves. NO_COLOR is respected.

Exit status: 0; 64 wrong arguments; 66 no such storage; 69 the storage refused;
71 the system refused";

/// An interval that is too short.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write 100ms or more: looking costs the storage as much as a standby does")]
struct TooOften;

fn parse_interval(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) { Err(TooOften.into()) } else { Ok(interval) }
}
