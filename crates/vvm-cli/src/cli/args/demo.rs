//! `vvm demo`, and the hidden commands that it starts.

use super::values::parse_ttl;
use clap::Args;
use ielections::Ttl;
use std::{ffi::OsString, path::PathBuf};

/// Watch it happen: three real `vvm run` on a temporary file, a crash, a clean stop, and a host that hangs.
///
/// Measures how long each change of leaders takes, and compares the workers' own logs: no two ever at work at
/// once. Takes about five TTLs. Exit status 0 if every check holds, else 1. Leaves nothing behind, unless a
/// check fails.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long a dead leader's record stands
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// Nothing but a JSON object on standard output: what was measured
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
    /// Where to write that it is at work
    pub(crate) log: PathBuf,
}
