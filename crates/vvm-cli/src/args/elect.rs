//! `vvm elect`.

use super::{
    candidate::CandidateArgs,
    values::{InvalidValue, parse_duration, parse_line},
};
use clap::Args;
use std::time::Duration;

/// Run a hook when this process begins to lead, and another when it stops leading.
///
/// For standbys that are already running, and for sidecars: the leader is a process that vvm does not start,
/// so vvm elect can't kill it before the next leader begins. Let each receiver of writes compare
/// VVM_LEADER_EPOCH and refuse smaller ones. If vvm can start and stop the command, use vvm run.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm elect --storage sqlite:leader.db --name payroll --on-lead ./promote --on-loss ./demote

  Hooks run one at a time, with VVM_LEADER_NAME, _SLOT, _EPOCH, _HOLDER and _INCARNATION in their environment.
  On TERM, INT, HUP or QUIT a leader runs the on-loss hook and releases the leadership. Then vvm exits.

Exit status:
  0   stopped by a signal      69  the storage refused
  1   a hook failed            71  the system refused
  64  wrong arguments          75  not acquired in time
  78  configuration conflict in the storage
  80  the kill deadline passed before the on-loss hook had ended")]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    /// Shell line (sh -c) that runs when leadership is acquired
    #[arg(long, value_name = "LINE", value_parser = parse_hook)]
    pub(crate) on_lead: String,
    /// Shell line (sh -c) that runs before leadership is released, at once after a loss, and at the kill
    /// deadline (0.8 TTL after the last renewal) at the latest. Runs again if vvm elect dies meanwhile; only
    /// its success then releases the leadership before the TTL has passed
    #[arg(long, value_name = "LINE", value_parser = parse_hook)]
    pub(crate) on_loss: String,
    /// How long a hook may take before it is killed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) hook_timeout: Duration,
}

fn parse_hook(text: &str) -> Result<String, InvalidValue> {
    match text.trim() {
        // `vvm run` has an option of the same name, and may share a settings file.
        "exit" | "rejoin" => Err(InvalidValue("this is for vvm run: write a line for sh -c, like ./demote")),
        "" => Err(InvalidValue("write a line for sh -c, like ./demote, or : for none")),
        _ => parse_line(text),
    }
}
