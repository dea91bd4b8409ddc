//! `vvm step-down`.

use super::values::{
    LocalDir, parse_duration, parse_holder, parse_name, parse_named_dir, parse_slots, parse_storage,
};
use clap::Args;
use ielections::Holder;
use std::{num::NonZeroU32, time::Duration};
use vvm_storage::StepDown;

/// Ask a leader to give its slot up, to a standby of your choice or to anybody else.
///
/// The leader stops its command as it would for TERM, releases the slot, and is a standby again; everybody
/// else holds back for 5 s after that, so that the standby named by --to comes first. Without --to, only the
/// one who stepped down holds back. If no standby of that name answers, or the leader does not, the request
/// is withdrawn, and nothing has changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = STEP_DOWN_HELP)]
pub(crate) struct StepDownArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// Which slot; needed where there are several
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub(crate) slot: Option<NonZeroU32>,
    /// Who shall lead next: the --holder of a standby
    #[arg(long, value_name = "HOLDER", value_parser = parse_to)]
    pub(crate) to: Option<Holder>,
    /// Where processes of this machine tell each other to look at once: a folder of this user's, or none
    /// [default: /tmp/vvm-UID]
    ///
    /// Whoever is to heed this is told of it there. Without it, they see it by themselves within a second.
    /// Leadership is as safe with it as without.
    #[arg(long, value_name = "DIR|none", value_parser = parse_named_dir)]
    pub(crate) local_dir: Option<LocalDir>,
    /// How long to wait for the next leader
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

const STEP_DOWN_HELP: &str = "\
Example:
  vvm step-down --storage sqlite:/var/lib/payroll/leader.db --name payroll --to machine-2

Exit status: 0 it is as asked for; 75 refused, nothing has changed; 76 the
leader stepped down, but it is not (yet) as asked for; 64 wrong arguments;
66 no such storage or name; 69 the storage refused; 71 the system refused";

fn parse_to(text: &str) -> Result<Holder, Box<dyn std::error::Error + Send + Sync>> {
    let to = parse_holder(text)?;
    if to.as_str().len() > StepDown::MAX_TO_BYTES {
        return Err(format!("at most {} bytes can be asked for", StepDown::MAX_TO_BYTES).into());
    }
    Ok(to)
}
