//! `vvm elect`.

use super::values::{
    LocalDir, parse_duration, parse_holder, parse_local_dir, parse_name, parse_slots, parse_storage,
    parse_ttl,
};
use clap::Args;
use ielections::{Holder, Ttl};
use std::{num::NonZeroU32, time::Duration};

/// Run a hook when this process begins to lead, and another when it no longer does.
///
/// For a standby that is warm already, or a sidecar: what leads is somebody else's process, and vvm elect
/// kills nothing. It therefore can't see to it that the last leader is dead before the next one begins: let
/// whatever is written to compare VVM_LEADER_EPOCH and refuse smaller ones. For a command that vvm starts,
/// and can end, there is vvm run.
#[derive(Clone, Debug, Args)]
#[command(after_help = ELECT_HELP)]
pub(crate) struct ElectArgs {
    /// Where leadership is recorded, e.g. sqlite:/var/lib/payroll/leader.db
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led: all who may replace each other give the same name
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// How many may lead at once, each in a slot of its own; the same number for everybody
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_slots, allow_hyphen_values = true)]
    pub(crate) slots: NonZeroU32,
    /// How long a dead leader's record stands: the longest pause without anybody leading
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// Who we are, for people who look at the record [default: HOSTNAME:PID]
    #[arg(long, value_parser = parse_holder)]
    pub(crate) holder: Option<Holder>,
    /// Where processes of this machine tell each other to look at once: a folder of this user's, or none
    /// [default: /tmp/vvm-UID]
    ///
    /// A standby hears of a release there, and leads at once. Without it, it looks by itself within a second.
    /// Leadership is as safe with it as without.
    #[arg(long, value_name = "DIR|none", value_parser = parse_local_dir)]
    pub(crate) local_dir: Option<LocalDir>,
    /// A line for sh -c, run once leadership was acquired
    #[arg(long, value_name = "LINE", value_parser = parse_hook)]
    pub(crate) on_lead: String,
    /// A line for sh -c, run when leadership is lost or is to be released: begun at the loss, and at the kill
    /// deadline (0.8 TTL after the last renewal) at the latest
    #[arg(long, value_name = "LINE", value_parser = parse_hook)]
    pub(crate) on_loss: String,
    /// How long a hook may take before it is killed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) hook_timeout: Duration,
    /// Only say what would be done, and who leads now: nothing is created, settled or run. Exit status as of
    /// the real thing where that would be refused, else 0
    #[arg(long)]
    pub(crate) dry_run: bool,
}

const ELECT_HELP: &str = "\
Example:
  vvm elect --storage sqlite:leader.db --name payroll --on-lead './promote $VVM_LEADER_EPOCH' --on-loss ./demote

  Hooks run one after the other, with VVM_LEADER_NAME, _SLOT, _EPOCH, _HOLDER and _INCARNATION.
  TERM, INT or HUP: the on-loss hook, if leading; then the leadership is released, and vvm ends.

Exit status: 0 stopped by TERM, INT or HUP; 1 the on-lead hook failed; 64 wrong arguments; 69 the storage refused;
71 the system refused; 78 configuration conflict in the storage; 80 the kill deadline passed before the on-loss
hook had ended";

/// A text that is no hook.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum NotAHook {
    #[error("write a line for sh -c, like ./demote, or : for none")]
    Empty,
    #[error("{0} is for vvm run: here it is a line for sh -c, like ./demote")]
    OfRun(&'static str),
}

fn parse_hook(text: &str) -> Result<String, NotAHook> {
    match text.trim() {
        "" => Err(NotAHook::Empty),
        // A settings file or an environment that both share.
        "exit" => Err(NotAHook::OfRun("exit")),
        "rejoin" => Err(NotAHook::OfRun("rejoin")),
        _ => Ok(text.into()),
    }
}
