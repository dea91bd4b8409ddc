//! `vvm run`: what is done with the command while leading, and when it has ended.

use super::{check::Check, values::parse_duration};
use clap::{Args, ValueEnum};
use std::{num::NonZeroU32, str::FromStr, time::Duration};
use vvm_containment::HelperLines;

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    /// A command that ends by itself sooner than this after leadership was acquired keeps the lease until
    /// then: a short cron job is not run again by those whose clocks are behind. TERM or INT ends the wait at
    /// once
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_duration)]
    pub(crate) hold_at_least: Duration,
    /// When the command ends by itself, with any status: release the leadership, or restart it under the same
    /// one
    #[arg(long, value_enum, default_value = "release")]
    pub(crate) on_exit: OnExit,
    /// How long to wait before the first restart; twice as long before each one after it. A run that outlasts
    /// --restart-backoff-max makes it begin anew
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) restart_backoff: Duration,
    /// The longest wait before a restart
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(crate) restart_backoff_max: Duration,
    /// How many restarts one leadership may see; when the command ends after the last one, the leadership is
    /// released and vvm exits with the command's status
    #[arg(long, value_name = "never|N", default_value = "never", allow_hyphen_values = true)]
    pub(crate) restart_limit: RestartLimit,
    /// A line for sh -c that is run before the command is told to stop, when it is to be stopped; TERM or INT
    /// is passed on afterwards
    #[arg(long, value_name = "LINE", value_parser = parse_line)]
    pub(crate) pre_stop: Option<String>,
    /// How long --pre-stop may take before it is killed; after a loss it has half of what the command has to
    /// stop
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) pre_stop_timeout: Duration,
    /// Whether the command works: a line for sh -c that has to exit with 0, or an http URL that has to answer
    /// 2xx. When that fails --check-failures times in a row, the command is stopped and the leadership
    /// released, so that somebody else leads; vvm exits with 81, or, with --on-loss rejoin, is a candidate
    /// again, after the others
    #[arg(long, value_name = "LINE|http://URL")]
    pub(crate) check: Option<Check>,
    /// How long after the command's start, and after each check, the next one begins
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_interval)]
    pub(crate) check_interval: Duration,
    /// A check that takes longer has failed
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) check_timeout: Duration,
    /// How many checks in a row must fail
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_failures, allow_hyphen_values = true)]
    pub(crate) check_failures: NonZeroU32,
}

impl WorkArgs {
    /// What runs beside the command.
    pub(crate) fn helpers(&self) -> HelperLines {
        let check = match &self.check {
            Some(Check::Command(line)) => Some(line.clone()),
            Some(Check::Http(_)) | None => None,
        };
        HelperLines { pre_stop: self.pre_stop.clone(), check }
    }
}

/// A text that is no line for a shell.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a line for sh -c, like './drain --now'")]
pub(crate) struct NotALine;

fn parse_line(text: &str) -> Result<String, NotALine> {
    if text.trim().is_empty() { Err(NotALine) } else { Ok(text.into()) }
}

/// A duration that is none.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write more than 0, like 10s")]
pub(crate) struct NotAnInterval;

fn parse_interval(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err(NotAnInterval.into()) } else { Ok(duration) }
}

/// A text that is no number of failures.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a number from 1 on")]
pub(crate) struct NotAFailureCount;

fn parse_failures(text: &str) -> Result<NonZeroU32, NotAFailureCount> {
    text.parse().map_err(|_| NotAFailureCount)
}

/// What follows when the command has ended by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnExit {
    Release,
    Restart,
}

/// When restarting comes to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RestartLimit {
    Never,
    /// After so many.
    After(u32),
}

/// A text that is no limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write never, or a number like 5")]
pub(crate) struct NotALimit;

impl FromStr for RestartLimit {
    type Err = NotALimit;

    fn from_str(text: &str) -> Result<Self, NotALimit> {
        if text == "never" {
            return Ok(Self::Never);
        }
        text.parse().map(Self::After).map_err(|_| NotALimit)
    }
}
