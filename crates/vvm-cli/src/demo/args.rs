//! The arguments of `vvm demo`, and of the commands that it starts.

use crate::cli::args::values::parse_ttl;
use clap::Args;
use ielections::Ttl;
use std::{ffi::OsString, path::PathBuf};

/// Watch it happen: three real `vvm run` on a temporary file, a crash, a clean stop, and a host that hangs.
///
/// Measures how long each change of leaders takes, and compares the workers' own logs: no two ever at work at once.
/// Takes about seven TTLs. Exit status 0 if all of it held, else 1.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long a dead leader's record stands
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// One JSON object per event on standard output, and last a summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to draw the timeline, as SVG
    #[arg(long, value_name = "FILE", default_value = "vvm-demo.svg")]
    pub(crate) picture: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoCandidateArgs {
    /// The process that it must not outlive
    #[arg(long)]
    pub(crate) demo: i32,
    #[arg(last = true, required = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoWorkerArgs {
    /// Where to write that it is at work
    pub(crate) log: PathBuf,
}
