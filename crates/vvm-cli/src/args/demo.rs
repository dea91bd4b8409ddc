//! `vvm demo`, and the hidden commands that it starts.

use super::values::parse_ttl;
use clap::Args;
use ielections::Ttl;
use std::{ffi::OsString, path::PathBuf};

/// Demonstrate fail-over: three vvm run processes on a temporary file, a crash, a clean stop, and a hang.
///
/// Measures how long each change of leaders takes, and checks by the workers' own logs that no two worked at
/// once. Takes about five TTLs. Exits with 0 if every check holds, otherwise with 1. Removes its files,
/// unless a check fails.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Time without renewals after which a standby takes over
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// Print only the measurements, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A `vvm run` that ends with the demo.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoCandidateArgs {
    /// The process of the demo
    #[arg(long)]
    pub(crate) demo: i32,
    #[arg(last = true, required = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// The worker of a candidate.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoWorkerArgs {
    /// The file to write its log to
    pub(crate) log: PathBuf,
}
