use crate::{
    args::{
        CandidateArgs, InvalidValue, OUTPUT, parse_check, parse_duration, parse_failures, parse_interval,
        parse_line,
    },
    exit,
};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use std::{ffi::OsString, num::NonZeroU32, path::PathBuf, time::Duration};
use vvm_cli::warm::machine::AfterStop;
use vvm_containment::{HelperLines, Level, RequestedLevel, SignalMeaning, meaning, signal_named};

/// Run a command only while this process leads.
///
/// Start the same command line several times, on one machine or many: one of them runs the command, the
/// others stand by. If the leader stops, crashes or hangs, its command and all processes that it started are
/// dead before the next command starts. --containment lists the exceptions.
#[derive(Clone, Debug, Args)]
#[command(after_help = exit::HELP, after_long_help = long_help(), override_usage = USAGE)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    /// After a loss, when the command has stopped: exit, or rejoin as a candidate
    #[arg(long, value_enum, default_value = "exit")]
    pub(crate) on_loss: OnLoss,
    /// Start the command at once, as a standby: it connects to the socket VVM_SOCKET, says when it could lead, and
    /// is told when it leads
    ///
    /// The messages are lines of JSON. docs/warm.md lists them.
    #[arg(long, help_heading = WARM)]
    pub(crate) warm: bool,
    /// With --warm: when the command has said that its work has stopped, kill all of its processes, release, and start it
    /// again; or release and keep it as a standby
    ///
    /// With keep, nothing but the command's word shows that the work has stopped. A process that the work has started
    /// may run beside the next leader.
    #[arg(long, value_enum, default_value = "restart", help_heading = WARM)]
    pub(crate) after_stop: AfterStop,
    /// With --warm: how long the command may take to answer that it leads
    #[arg(help_heading = WARM)]
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) start_timeout: Duration,
    /// With --warm: while the command leads, it says "alive" at least this often. Otherwise it is stopped, and the
    /// record is released
    #[arg(long, value_name = "DURATION", value_parser = parse_interval, help_heading = WARM)]
    pub(crate) alive_within: Option<Duration>,
    /// How long the command may take to stop before it is killed
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = parse_duration)]
    pub(crate) stop_timeout: Duration,
    /// The signal that asks the command to stop, such as QUIT for nginx or WINCH for httpd. It also stops vvm. The command
    /// gets it in place of TERM, and is not restarted after it
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    pub(crate) stop_signal: Option<Signal>,
    /// After the death of the host process: how long the guardian waits before it releases the record, once
    /// no process is left. For effects that outlive processes, such as statements that a server executes
    #[arg(help_heading = CONTAINMENT)]
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_duration)]
    pub(crate) quiet_time: Duration,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// How to contain the processes of the command
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "auto", help_heading = CONTAINMENT)]
    pub(crate) containment: ContainmentLevel,
    /// Write the outcome to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) result_file: Option<PathBuf>,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

const WARM: &str = "Warm standby";
const RESTARTS: &str = "Restarts, with --on-exit restart";
const CHECKS: &str = "Health check, and what runs before a stop";
const CONTAINMENT: &str = "Containment";

const USAGE: &str = "vvm run --storage URL --name NAME [OPTIONS] -- CMD [ARGS…]";

fn long_help() -> String {
    const EXAMPLE: &str = "\
Example:
  vvm run --storage sqlite:/var/lib/payroll/leader.db --name payroll -- ./worker --nightly

  Environment of CMD: VVM_LEADER_NAME, _SLOT, _EPOCH, _HOLDER and _INCARNATION. Send the epoch with each
  write, and let the receiver refuse smaller ones. Other VVM_ variables are removed.
  Signals: CMD gets every signal that vvm gets. TERM, INT, --stop-signal, and all others that would end vvm, except
  HUP, QUIT, USR1 and USR2, stop vvm: CMD has --stop-timeout to end, and a second signal kills it. A lost
  terminal stops vvm, too: CMD gets HUP. While CMD is not running, HUP and QUIT end vvm as well.
  Terminal: Ctrl-Z stops CMD and vvm. If they are not continued before the kill deadline (0.8 TTL), the kernel
  kills both, because another process may lead soon.";
    format!("{EXAMPLE}\n\n{}", exit::HELP)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnLoss {
    Exit,
    Rejoin,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ContainmentLevel {
    /// cgroup if a control group is delegated to vvm, otherwise guardian
    Auto,
    /// vvm is three processes. If one of them is killed, stopped or hangs, the others kill CMD and all
    /// processes that CMD started. If all are killed (killall -9 vvm) or stopped at once, the kernel kills
    /// CMD, but processes that CMD started survive beside the next leader's, and so does CMD if it is
    /// set-uid, has file capabilities, or changes its user or group
    Guardian,
    /// As guardian, and CMD runs in a control group of its own, whose processes are killed all at once,
    /// however fast they fork. Needs cgroup v2 and a delegated group: systemd's Delegate=yes
    Cgroup,
    /// As guardian, and CMD runs in a PID namespace of its own, which the kernel kills as a whole when the
    /// host process dies. CMD sees only its own processes, under other numbers. Needs root, CAP_SYS_ADMIN, or
    /// a kernel with user namespaces for all users; sudo has no effect inside it
    Pidns,
}

impl From<ContainmentLevel> for RequestedLevel {
    fn from(level: ContainmentLevel) -> Self {
        match level {
            ContainmentLevel::Auto => Self::Auto,
            ContainmentLevel::Guardian => Self::Exactly(Level::Guardian),
            ContainmentLevel::Cgroup => Self::Exactly(Level::ControlGroup),
            ContainmentLevel::Pidns => Self::Exactly(Level::PidNamespace),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    /// When the command ends by itself, with any status: release the leadership, or restart the command under
    /// the same leadership
    #[arg(long, value_enum, default_value = "release")]
    pub(crate) on_exit: OnExit,
    /// Delay before the first restart; it doubles with each restart. A run longer than --restart-backoff-max resets it
    #[arg(help_heading = RESTARTS)]
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) restart_backoff: Duration,
    /// Longest delay before a restart
    #[arg(help_heading = RESTARTS)]
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(crate) restart_backoff_max: Duration,
    /// Number of restarts in one leadership; when the command ends after the last one, vvm releases and exits
    /// with its status
    #[arg(help_heading = RESTARTS)]
    #[arg(
        long, value_name = "never|N", default_value = "never", allow_hyphen_values = true,
        value_parser = parse_restart_limit
    )]
    pub(crate) restart_limit: RestartLimit,
    /// Shell line (sh -c) that runs before the command gets TERM or INT
    #[arg(long, value_name = "LINE", value_parser = parse_line, help_heading = CHECKS)]
    pub(crate) pre_stop: Option<String>,
    /// How long --pre-stop may take before it is killed; after a loss, half of the time that the command has to stop
    #[arg(help_heading = CHECKS)]
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) pre_stop_timeout: Duration,
    /// Health check of the command: a shell line (sh -c) that must exit with 0. After --check-failures
    /// failures in a row the command is stopped and the leadership released; vvm exits with 81, or with
    /// --on-loss rejoin becomes a candidate again, after the others
    #[arg(long, value_name = "LINE", value_parser = parse_check, help_heading = CHECKS)]
    pub(crate) check: Option<String>,
    /// Delay before the first check, and between checks
    #[arg(help_heading = CHECKS)]
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_interval)]
    pub(crate) check_interval: Duration,
    /// How long a check may take before it counts as failed
    #[arg(help_heading = CHECKS)]
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) check_timeout: Duration,
    /// Number of failed checks in a row that stop the command
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_failures, help_heading = CHECKS)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) check_failures: NonZeroU32,
}

impl WorkArgs {
    pub(crate) fn helpers(&self) -> HelperLines {
        HelperLines { pre_stop: self.pre_stop.clone(), check: self.check.clone() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnExit {
    Release,
    Restart,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RestartLimit(pub(crate) Option<u32>);

fn parse_signal(text: &str) -> Result<Signal, InvalidValue> {
    match signal_named(text) {
        None => Err(InvalidValue("write a signal that can be caught, like QUIT, WINCH or RTMIN+3")),
        Some(signal) if meaning(signal) == Some(SignalMeaning::JobControl) => {
            Err(InvalidValue("it is for job control, and ends no command: write QUIT, WINCH or RTMIN+3"))
        }
        Some(signal) => Ok(signal),
    }
}

fn parse_restart_limit(text: &str) -> Result<RestartLimit, InvalidValue> {
    if text == "never" {
        return Ok(RestartLimit(None));
    }
    let limit = text.parse().map_err(|_| InvalidValue("write never, or a number like 5"))?;
    Ok(RestartLimit(Some(limit)))
}
