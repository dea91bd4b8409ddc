//! `vvm run`: restarts, checks and hooks of the command.

use super::{
    check::Check,
    values::{InvalidValue, parse_duration, parse_failures, parse_interval, parse_line},
};
use clap::{Args, ValueEnum};
use std::{num::NonZeroU32, time::Duration};
use vvm_containment::HelperLines;

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    /// If the command ends by itself sooner than this after the acquisition, keep the lease until then, so
    /// that machines with clocks behind do not run a short cron job again. TERM or INT ends the wait
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_duration)]
    pub(crate) hold_at_least: Duration,
    /// When the command ends by itself, with any status: release the leadership, or restart the command under
    /// the same leadership
    #[arg(long, value_enum, default_value = "release")]
    pub(crate) on_exit: OnExit,
    /// Delay before the first restart; it doubles with each restart. A run longer than --restart-backoff-max
    /// resets it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) restart_backoff: Duration,
    /// Longest delay before a restart
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(crate) restart_backoff_max: Duration,
    /// Number of restarts in one leadership; when the command ends after the last one, vvm releases and exits
    /// with its status
    #[arg(
        long, value_name = "never|N", default_value = "never", allow_hyphen_values = true,
        value_parser = parse_restart_limit
    )]
    pub(crate) restart_limit: RestartLimit,
    /// Shell line (sh -c) that runs before the command gets TERM or INT
    #[arg(long, value_name = "LINE", value_parser = parse_line)]
    pub(crate) pre_stop: Option<String>,
    /// How long --pre-stop may take before it is killed; after a loss, half of the time that the command has
    /// to stop
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) pre_stop_timeout: Duration,
    /// Health check of the command: a shell line (sh -c) that must exit with 0, or an http URL that must
    /// answer 2xx. After --check-failures failures in a row the command is stopped and the leadership
    /// released; vvm exits with 81, or with --on-loss rejoin becomes a candidate again, after the others
    #[arg(long, value_name = "LINE|http://URL")]
    pub(crate) check: Option<Check>,
    /// Delay before the first check, and between checks
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_interval)]
    pub(crate) check_interval: Duration,
    /// How long a check may take before it counts as failed
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) check_timeout: Duration,
    /// Number of failed checks in a row that stop the command
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_failures)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) check_failures: NonZeroU32,
}

impl WorkArgs {
    /// Returns the shell lines that run beside the command.
    pub(crate) fn helpers(&self) -> HelperLines {
        let check = match &self.check {
            Some(Check::Command(line)) => Some(line.clone()),
            Some(Check::Http(_)) | None => None,
        };
        HelperLines { pre_stop: self.pre_stop.clone(), check }
    }
}

/// What follows when the command has ended by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnExit {
    Release,
    Restart,
}

/// The number of restarts in one leadership; `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RestartLimit(pub(crate) Option<u32>);

fn parse_restart_limit(text: &str) -> Result<RestartLimit, InvalidValue> {
    if text == "never" {
        return Ok(RestartLimit(None));
    }
    let limit = text.parse().map_err(|_| InvalidValue("write never, or a number like 5"))?;
    Ok(RestartLimit(Some(limit)))
}
