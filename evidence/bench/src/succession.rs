//! Fail-over after `kill -9` and clean hand-over between real `vvm run` processes, as multiples of the TTL:
//! what `vvm demo` measures from its workers' own logs, several times. Who waits is told of a release
//! (`--local-dir`), so that the median is what was promised for that; the largest may be one that was not,
//! and looked by itself.

use crate::figure::{Figure, Side, Statistic, Unit};
use serde::Deserialize;
use std::{env, io, process::Command};

/// No figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuccessionError {
    #[error("vvm could not be started: {0}; build it with `cargo build --profile dist -p vvm-cli`")]
    Start(#[from] io::Error),
    #[error("the demo ended without a summary: {0}")]
    NoSummary(String),
}

/// The last line of `vvm demo --json`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Summary {
    crash_failover_ms: f64,
    handover_ms: f64,
}

const TTL_MS: f64 = 1000.0;
/// What a standby of that TTL waits at most between two looks: a quarter of it.
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
