//! The commands that write a request: `vvm pause`, `vvm resume`, `vvm step-down`.

use super::{
    duration::{NotADuration, parse_duration},
    target::TargetArgs,
    values::{parse_holder, parse_slots, parse_text},
};
use clap::Args;
use ielections::Holder;
use std::{error::Error, num::NonZeroU32, time::Duration};
use vvm_host::LocalDir;
use vvm_storage::StepDown;

/// Stop all leaders and keep candidates from leading, for maintenance.
///
/// Leaders stop their command as on TERM, release their slot, and wait with all candidates until vvm resume.
/// After this command has succeeded, no command runs until then: candidates check for a pause before they
/// start anything. Programs that use elections without a vvm_host::Host ignore a pause.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm pause --storage sqlite:/var/lib/payroll/leader.db --name payroll --reason 'new schema'

Exit status: 0 no command runs; 76 paused, but a leader has not stopped yet;
64 wrong arguments; 66 no such storage or name; 69 the storage refused;
71 the system refused")]
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
#[command(after_help = "\
Example:
  vvm resume --storage sqlite:/var/lib/payroll/leader.db --name payroll

Exit status: 0, also if it was not paused; 64 wrong arguments; 66 no such
storage or name; 69 the storage refused; 71 the system refused")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
}

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    No,
    For(Duration),
}

fn parse_wait(text: &str) -> Result<Wait, NotADuration> {
    if text == "no" { Ok(Wait::No) } else { parse_duration(text).map(Wait::For) }
}

/// Ask a leader to hand its slot over, to a given standby or to any.
///
/// A standby accepts first: the one named by --to, or any. Then the leader stops its command as on TERM,
/// releases the slot, and becomes a standby. The other candidates hold back for 5 s, so that the standby
/// named by --to comes first. Without --to, only the old leader holds back. If no standby answers, or the
/// leader does not, the request is withdrawn and nothing has changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm step-down --storage sqlite:/var/lib/payroll/leader.db --name payroll --to machine-2

Exit status: 0 done; 75 refused, nothing has changed; 76 the leader stepped
down, but the requested state is not reached yet; 64 wrong arguments; 66 no
such storage or name; 69 the storage refused; 71 the system refused")]
pub(crate) struct StepDownArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The slot; required if there are several
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub(crate) slot: Option<NonZeroU32>,
    /// The next leader: the --holder of a standby
    #[arg(long, value_name = "HOLDER", value_parser = parse_to)]
    pub(crate) to: Option<Holder>,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
    /// How long to wait for the next leader
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

fn parse_to(text: &str) -> Result<Holder, Box<dyn Error + Send + Sync>> {
    let to = parse_holder(text)?;
    if to.as_str().len() > StepDown::MAX_TO_BYTES {
        return Err(format!("write at most {} bytes", StepDown::MAX_TO_BYTES).into());
    }
    Ok(to)
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WakeArgs {
    /// Folder of sockets that wakes the candidates of this user on this machine, or none
    /// [default: /tmp/vvm-UID]
    ///
    /// Candidates that are not woken see the request within a second. Safety does not depend on it.
    // The folder may be unfit: then no candidate is woken.
    #[arg(long, value_name = "DIR|none", value_parser = str::parse::<LocalDir>)]
    pub(crate) local_dir: Option<LocalDir>,
}
