//! `vvm pause` and `vvm resume`.

use super::values::{GivenDuration, LocalDir, parse_name, parse_named_dir, parse_storage};
use clap::Args;
use std::{str::FromStr, time::Duration};

/// See to it that nobody leads: for maintenance.
///
/// Leaders stop their command as they would for TERM, release their slot, and wait with all the others until
/// vvm resume. When this command has succeeded, nobody works, and nobody will until then: candidates see the
/// pause before they start anything. Programs that embed elections without a vvm_host::Host don't know of it.
#[derive(Clone, Debug, Args)]
#[command(after_help = PAUSE_HELP)]
pub(crate) struct PauseArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// Why, for whoever wonders
    #[arg(long, value_name = "TEXT", value_parser = parse_words)]
    pub(crate) reason: Option<String>,
    /// Who pauses, for people [default: USER@HOSTNAME]
    #[arg(long, value_name = "WHO", value_parser = parse_words)]
    pub(crate) by: Option<String>,
    /// How long to wait until nobody leads, or no
    #[arg(long, value_name = "DURATION|no", default_value = "60s")]
    pub(crate) wait: Wait,
    /// Where processes of this machine tell each other to look at once: a folder of this user's, or none
    /// [default: /tmp/vvm-UID]
    ///
    /// Whoever is to heed this is told of it there. Without it, they see it by themselves within a second.
    /// Leadership is as safe with it as without.
    #[arg(long, value_name = "DIR|none", value_parser = parse_named_dir)]
    pub(crate) local_dir: Option<LocalDir>,
}

/// End a pause: whoever waits may lead again.
#[derive(Clone, Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub(crate) struct ResumeArgs {
    /// Where leadership is recorded, as told to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What is led, as told to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// Where processes of this machine tell each other to look at once: a folder of this user's, or none
    /// [default: /tmp/vvm-UID]
    ///
    /// Whoever is to heed this is told of it there. Without it, they see it by themselves within a second.
    /// Leadership is as safe with it as without.
    #[arg(long, value_name = "DIR|none", value_parser = parse_named_dir)]
    pub(crate) local_dir: Option<LocalDir>,
}

const PAUSE_HELP: &str = "\
Example:
  vvm pause --storage sqlite:/var/lib/payroll/leader.db --name payroll --reason 'new schema'

Exit status: 0 nobody works; 76 paused, but somebody has not stopped yet;
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

impl FromStr for Wait {
    type Err = <GivenDuration as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "no" {
            return Ok(Self::No);
        }
        text.parse().map(|GivenDuration(duration)| Self::For(duration))
    }
}

/// A text that does not fit into a line.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write 1 to 255 bytes without control characters")]
pub(crate) struct NotWords;

fn parse_words(text: &str) -> Result<String, NotWords> {
    let fits = (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits { Ok(text.into()) } else { Err(NotWords) }
}
