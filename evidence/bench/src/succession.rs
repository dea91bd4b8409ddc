//! Fail-over after `kill -9` and clean hand-over between real `vvm run` processes, in multiples of the TTL:
//! several runs of `vvm demo`. A release wakes local standbys, so that the median is that of a woken one; the
//! largest may be that of a standby that polled.

use crate::report::{Figure, Side, Statistic, Unit};
use serde::Deserialize;
use std::{env, io, process::Command};

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuccessionError {
    #[error("vvm could not be started: {0}; build it with `cargo build --profile dist -p vvm-cli`")]
    Start(#[from] io::Error),
    #[error("the demo ended without a summary: {0}")]
    NoSummary(String),
}

/// The last line of `vvm demo --json`.
#[derive(Debug, Deserialize)]
struct Summary {
    crash_failover_ms: f64,
    handover_ms: f64,
}

const TTL_MS: f64 = 1000.0;
/// The longest pause between two looks of a standby: a quarter of the TTL.
const POLL_MS: f64 = TTL_MS / 4.0;

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, SuccessionError> {
    let rounds = if quick { 1 } else { 7 };
    let summaries = (0..rounds).map(|_| demo()).collect::<Result<Vec<Summary>, _>>()?;
    let in_ttls =
        |of: fn(&Summary) -> f64| summaries.iter().map(|summary| of(summary) / TTL_MS).collect::<Vec<f64>>();
    Ok(vec![
        Figure::new(
            "fail-over after kill -9, in TTLs of 1 s",
            Unit::Ratio,
            in_ttls(|summary| summary.crash_failover_ms),
        )
        .with_goal(Statistic::Max, Side::AtMost, 1.1 + 200.0 / TTL_MS),
        Figure::new("clean hand-over, in TTLs of 1 s", Unit::Ratio, in_ttls(|summary| summary.handover_ms))
            .with_goal(Statistic::Max, Side::AtMost, (POLL_MS + 100.0) / TTL_MS)
            .with_goal(Statistic::Median, Side::AtMost, 200.0 / TTL_MS),
    ])
}

fn demo() -> Result<Summary, SuccessionError> {
    let vvm = env::current_exe()?.with_file_name("vvm");
    let folder = tempfile::tempdir()?;
    let ttl = format!("{TTL_MS}ms");
    let ran =
        Command::new(vvm).args(["demo", "--json", "--ttl", &ttl]).current_dir(folder.path()).output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let summary = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
    summary.ok_or_else(|| SuccessionError::NoSummary(String::from_utf8_lossy(&ran.stderr).into_owned()))
}
