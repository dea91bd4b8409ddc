//! `vvm pause` and `vvm resume`.

use super::{
    duration::{NotADuration, parse_duration},
    target::{TargetArgs, WakeArgs},
    values::parse_text,
};
use clap::Args;
use std::time::Duration;

/// Stop all leaders and keep candidates from leading, for maintenance.
///
/// Leaders stop their command as on TERM, release their slot, and wait with all candidates until vvm resume.
/// After this command has succeeded, no command runs until then: candidates check for a pause before they
/// start anything. Programs that use elections without a vvm_host::Host ignore a pause.
#[derive(Clone, Debug, Args)]
#[command(after_help = PAUSE_HELP)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The reason, shown to operators
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    pub(crate) reason: Option<String>,
    /// The author of the pause, shown to operators [default: USER@HOSTNAME]
    #[arg(long, value_name = "AUTHOR", value_parser = parse_text)]
    pub(crate) by: Option<String>,
    /// How long to wait until all commands have stopped, or no
    #[arg(long, value_name = "DURATION|no", default_value = "60s", value_parser = parse_wait)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
}

/// End a pause: candidates may lead again.
#[derive(Clone, Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
}

const PAUSE_HELP: &str = "\
Example:
  vvm pause --storage sqlite:/var/lib/payroll/leader.db --name payroll --reason 'new schema'

Exit status: 0 no command runs; 76 paused, but a leader has not stopped yet;
64 wrong arguments; 66 no such storage or name; 69 the storage refused;
71 the system refused";

const RESUME_HELP: &str = "\
Example:
  vvm resume --storage sqlite:/var/lib/payroll/leader.db --name payroll

Exit status: 0, also if it was not paused; 64 wrong arguments; 66 no such
storage or name; 69 the storage refused; 71 the system refused";

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    No,
    For(Duration),
}

fn parse_wait(text: &str) -> Result<Wait, NotADuration> {
    if text == "no" { Ok(Wait::No) } else { parse_duration(text).map(Wait::For) }
}
