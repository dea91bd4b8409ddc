//! `vvm run`.

use super::{
    observe::ObserveArgs,
    values::{
        GivenDuration, LocalDir, parse_duration, parse_exit_status, parse_holder, parse_local_dir,
        parse_name, parse_slots, parse_storage, parse_ttl,
    },
    work::WorkArgs,
};
use crate::cli::exit;
use clap::{Args, ValueEnum};
use ielections::{Holder, Ttl, record::HolderTooLong};
use std::{ffi::OsString, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration};
use vvm_containment::{Level, Wanted};
use vvm_host::operate as identity;

/// Run a command only while this process leads.
///
/// Start the same line several times, wherever the storage can be reached: one of them runs the command, the
/// others stand by. When the leader stops, crashes or hangs, its command and everything that it started are
/// dead before the next one starts; --containment says what is out of reach.
#[derive(Clone, Debug, Args)]
#[command(after_help = exit::HELP, after_long_help = concat_help(), override_usage = RUN_USAGE)]
pub(crate) struct RunArgs {
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
    /// How long to wait for leadership: never (wait for ever), 0 (take a free slot or leave), or a duration
    #[arg(long, value_name = "never|0|DURATION", default_value = "never")]
    pub(crate) acquire_timeout: AcquireTimeout,
    /// Leave once it is certain that somebody alive leads, which can take one TTL, or when the storage has
    /// been of no use for 1.4 TTL
    #[arg(long = "try", conflicts_with = "acquire_timeout")]
    pub(crate) try_once: bool,
    /// When leadership is lost and the command has been stopped: exit, or rejoin as a candidate
    #[arg(long, value_enum, default_value = "exit")]
    pub(crate) on_loss: OnLoss,
    /// How long the command has to stop after TERM before it is killed
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = parse_duration)]
    pub(crate) stop_timeout: Duration,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
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
    /// What keeps the command's processes together
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "auto")]
    pub(crate) containment: ContainmentLevel,
    /// Leave the storage's credentials in the command's environment: on dynamodb, AWS_ACCESS_KEY_ID and what
    /// goes with it
    #[arg(long)]
    pub(crate) keep_credentials: bool,
    /// Exit status when leadership was lost
    #[arg(long, value_name = "N", default_value_t = exit::LOST, value_parser = parse_exit_status)]
    pub(crate) exit_code_lost: u8,
    /// Exit status when leadership was not acquired in time
    #[arg(long, value_name = "N", default_value_t = exit::NOT_ACQUIRED, value_parser = parse_exit_status)]
    pub(crate) exit_code_timeout: u8,
    #[command(flatten)]
    pub(crate) observe: ObserveArgs,
    /// Write how it ended to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) result_file: Option<PathBuf>,
    /// Only say what would be done, and who leads now: nothing is created, settled or started. Exit status as
    /// of the real thing where that would be refused, else 0
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// Who we are, to people.
    ///
    /// # Errors
    /// When the machine's name is longer than a holder may be, which uname(2) does not allow for.
    pub(crate) fn holder(&self) -> Result<Holder, HolderTooLong> {
        identity::or_own_name(self.holder.as_ref())
    }
}

const RUN_USAGE: &str = "vvm run --storage URL --name NAME [OPTIONS] -- CMD [ARGS…]";

const EXAMPLE: &str = "\
Example:
  vvm run --storage sqlite:/var/lib/payroll/leader.db --name payroll -- ./worker --nightly

  CMD finds VVM_LEADER_NAME, _SLOT, _EPOCH, _HOLDER and _INCARNATION in its environment; pass the epoch along
  with each write, and let the receiver refuse smaller ones. Other VVM_ variables are taken out of it.
  TERM, INT, HUP, QUIT, USR1 and USR2 are passed on to CMD; TERM and INT stop: CMD has --stop-timeout, and a second
  one kills at once. A lost terminal stops, too: CMD gets HUP. While there is no CMD, TERM, INT, HUP and QUIT end vvm.
  At a terminal, Ctrl-Z stops CMD and vvm; unless continued before the deadline (0.8 TTL), the kernel ends both,
  because by then somebody else may lead.";

fn concat_help() -> String {
    format!("{EXAMPLE}\n\n{}", exit::HELP)
}

/// How long to wait for leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcquireTimeout {
    /// For ever.
    Never,
    /// This long; zero for one look.
    After(Duration),
}

impl FromStr for AcquireTimeout {
    type Err = <GivenDuration as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "never" {
            return Ok(Self::Never);
        }
        text.parse().map(|GivenDuration(duration)| Self::After(duration))
    }
}

/// What follows a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnLoss {
    Exit,
    Rejoin,
}

/// A level of containment, or the choice of one.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ContainmentLevel {
    /// cgroup where one is delegated to us, else guardian
    Auto,
    /// vvm is two processes. If one of them is killed, stopped or hangs, the other one ends whatever CMD has
    /// started. If both are killed (killall -9 vvm) or stopped at once, the kernel ends CMD, but what CMD has
    /// started lives on, beside the next leader's
    Guardian,
    /// As guardian, and CMD in a control group of its own, in which all processes can be killed at once,
    /// however fast they fork. Needs cgroup v2, and that vvm's own group is delegated to it: systemd's
    /// Delegate=yes
    Cgroup,
    /// As guardian, and CMD in a PID namespace of its own, which the kernel ends as a whole when the host is
    /// dead, whatever became of the guardian. CMD sees its own processes only, by other numbers. Needs root
    /// or CAP_SYS_ADMIN, or a kernel that gives user namespaces to all users; sudo does nothing inside of one
    Pidns,
}

impl From<ContainmentLevel> for Wanted {
    fn from(level: ContainmentLevel) -> Self {
        match level {
            ContainmentLevel::Auto => Self::Auto,
            ContainmentLevel::Guardian => Self::Exactly(Level::Guardian),
            ContainmentLevel::Cgroup => Self::Exactly(Level::ControlGroup),
            ContainmentLevel::Pidns => Self::Exactly(Level::PidNamespace),
        }
    }
}
