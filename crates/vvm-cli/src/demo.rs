//! `vvm demo`: real `vvm run` on one SQLite file. One leads, crashes, stops, hangs; the next one takes over. The
//! processes tell what happens: the lines of their logs are shown, and at the end their history. `script` has the
//! steps. `checks` decides by the workers' own logs which promises hold.

mod candidate;
mod checks;
mod course;
mod script;
mod worker;

pub(crate) use candidate::main as candidate_main;
pub(crate) use worker::main as worker_main;

use crate::{
    announce::say,
    args::{parse_file, parse_ttl},
    exit,
    result_file::{self, ResultFileError},
    runtime::Signals,
    shown::{Palette, Style},
};
use candidate::{NAME, vvm};
use checks::Results;
use clap::Args;
use ielections::Ttl;
use rustix::process::{Signal, getpid, set_child_subreaper};
use script::Run;
use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};
use tempfile::{Builder, TempDir};
use vvm_clock::SystemClock;
use vvm_containment::{Containment, Family, end_all};
use vvm_host::operate::Timeline;
use vvm_storage::BeyondLimits;

#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error(transparent)]
    Ttl(#[from] BeyondLimits),
    #[error("the system refuses what the demo needs: {0}")]
    System(#[from] io::Error),
    #[error("--svg: {0}")]
    Svg(#[from] ResultFileError),
    #[error("interrupted")]
    Interrupted(Signal),
    #[error("{0}")]
    Failed(String),
}

impl DemoError {
    fn failed(cause: impl ToString) -> Self {
        Self::Failed(cause.to_string())
    }
}

pub(crate) fn main(demo: &DemoArgs) -> ExitCode {
    match run(demo) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader of standard output has gone, as `head` does.
        Err(DemoError::System(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("demo: {refusal}");
            match refusal {
                DemoError::Ttl(_) | DemoError::Svg(_) => exit::MISUSE.into(),
                DemoError::Interrupted(signal) => exit::die_of(signal),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

const TRIES: usize = 3;

fn run(demo: &DemoArgs) -> Result<bool, DemoError> {
    let family = Family::of_this_process().map_err(DemoError::failed)?;
    // Guardians that are killed leave processes behind, which become children of the demo. It ends them (I9).
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    if let Some(path) = &demo.svg {
        result_file::check(path, &[])?;
    }
    // Before there is anything to clean up.
    let mut signals = Signals::catch()?;
    let mut tries = 1;
    loop {
        let folder = folder()?;
        // On an overlay, too: all candidates see this folder.
        let storage = format!("sqlite:{}?allow=overlay", folder.path().join("elections.db").display());
        let (results, timeline) = play(demo, &folder, &storage, family, &mut signals)?;
        let report = |folder| {
            let reported = report(demo, &results, &storage, folder)?;
            if let Some(path) = &demo.svg {
                result_file::write(path, timeline.to_svg().as_bytes()).map_err(DemoError::failed)?;
            }
            Ok(reported)
        };
        let Some((stall, step)) = results.inconclusive_by else { return report(folder) };
        let stalled = format!("this machine was late by {} in step {step}", course::seconds(stall));
        if tries == TRIES {
            say!("demo: inconclusive: {stalled}; try it on a calmer one");
            return report(folder);
        }
        tries += 1;
        say!("demo: {stalled}, so the step shows nothing; from the beginning (try {tries} of {TRIES})");
    }
}

/// Creates a folder in memory, unless TMPDIR is set: the demo does not show the speed of a busy disk.
fn folder() -> Result<TempDir, DemoError> {
    let mut builder = Builder::new();
    builder.prefix("vvm-demo-");
    let in_memory = env::var_os("TMPDIR").is_none().then(|| builder.tempdir_in("/dev/shm"));
    let folder = in_memory.and_then(Result::ok).map_or_else(|| builder.tempdir(), Ok);
    folder.map_err(|cause| {
        DemoError::Failed(format!("can't create a temporary folder (set TMPDIR to another place): {cause}"))
    })
}

fn play(
    demo: &DemoArgs,
    folder: &TempDir,
    storage: &str,
    family: Family,
    signals: &mut Signals,
) -> Result<(Results, Timeline), DemoError> {
    let mut run = Run::new(demo, folder.path(), storage, family, signals)?;
    let played = run.play();
    end_all(&Containment::by_family(family), drop, drop);
    let early = match played {
        Err(error @ DemoError::Interrupted(_)) => return Err(error),
        played => played.err().map(|error| error.to_string()),
    };
    let (course, work) = run.end()?;
    let timeline = course.timeline(&work, demo.ttl, SystemClock::read());
    Ok((Results::new(&course, &work, demo.ttl, early.as_deref()), timeline))
}

fn report(demo: &DemoArgs, results: &Results, storage: &str, folder: TempDir) -> Result<bool, DemoError> {
    if demo.json {
        writeln!(io::stdout(), "{}", results.summary)?;
    } else {
        writeln!(io::stdout())?;
        vvm(["history", "--storage", storage, "--name", NAME]).status()?;
        let palette = Palette::of_standard_output();
        for check in &results.checks {
            let (sign, style) = if check.holds { ("✓", Style::Good) } else { ("✗", Style::Bad) };
            writeln!(io::stdout(), "{}", palette.paint(&format!("  {sign} {}", check.text), style))?;
        }
    }
    if !results.hold() {
        say!("demo: a check failed; the files of the run are kept in {}", folder.keep().display());
        return Ok(false);
    }
    Ok(true)
}

/// Demonstrate fail-over: three vvm run processes on a temporary file, a crash, a clean stop, and a hang.
///
/// Measures how long each change of leaders takes, and checks by the workers' own logs that no two worked at
/// once. Takes about five TTLs. Exits with 0 if every check holds, otherwise with 1. Begins again, at most twice, if
/// this machine was so late that a check shows nothing. Removes its files, unless a check fails.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Time without renewals after which a standby takes over
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// Print only the measurements, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the run to this file: who led when, and what was done to them
    #[arg(long, value_name = "FILE", value_parser = parse_file)]
    pub(crate) svg: Option<PathBuf>,
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
