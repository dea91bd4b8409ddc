//! `vvm step-down`.

use super::{
    target::{TargetArgs, WakeArgs},
    values::{parse_duration, parse_holder, parse_slots},
};
use clap::Args;
use ielections::Holder;
use std::{error::Error, num::NonZeroU32, time::Duration};
use vvm_storage::StepDown;

/// Ask a leader to hand its slot over, to a given standby or to any.
///
/// The leader stops its command as on TERM, releases the slot, and becomes a standby. The other candidates
/// hold back for 5 s, so that the standby named by --to comes first. Without --to, only the old leader holds
/// back. If no standby of that name answers, or the leader does not, the request is withdrawn and nothing has
/// changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = STEP_DOWN_HELP)]
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

const STEP_DOWN_HELP: &str = "\
Example:
  vvm step-down --storage sqlite:/var/lib/payroll/leader.db --name payroll --to machine-2

Exit status: 0 done; 75 refused, nothing has changed; 76 the leader stepped
down, but the requested state is not reached yet; 64 wrong arguments; 66 no
such storage or name; 69 the storage refused; 71 the system refused";

fn parse_to(text: &str) -> Result<Holder, Box<dyn Error + Send + Sync>> {
    let to = parse_holder(text)?;
    if to.as_str().len() > StepDown::MAX_TO_BYTES {
        return Err(format!("write at most {} bytes", StepDown::MAX_TO_BYTES).into());
    }
    Ok(to)
}
