//! `vvm demo`: real `vvm run` on one SQLite file. One leads, crashes, stops, hangs; the next one takes over.
//!
//! The processes tell what happens: the lines of their logs are shown, and at the end their history. `script` has
//! the steps. `checks` decides by the workers' own logs which promises hold.

mod candidate;
mod checks;
mod script;
mod worker;

pub(crate) use candidate::main as candidate_main;
pub(crate) use worker::main as worker_main;

use crate::{
    announce::say,
    args::parse_ttl,
    exit,
    runtime::Signals,
    shown::{Palette, Style},
};
use candidate::{Candidate, NAME, vvm};
use checks::Results;
use clap::Args;
use ielections::{ReadError, Ttl, TtlStorage as _};
use rustix::process::{Signal, getpid, set_child_subreaper};
use script::{Record, Run, Stall};
use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};
use tempfile::{Builder, TempDir};
use vvm_clock::SystemClock;
use vvm_containment::{Containment, Ended, Family, ForeignProcFs, end_all};
use vvm_storage::{BeyondLimits, OpenError};
use worker::WorkPeriod;

#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error(transparent)]
    Ttl(#[from] BeyondLimits),
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("can't create a temporary folder (set TMPDIR to another place): {0}")]
    Folder(#[source] io::Error),
    #[error("the system refuses what the demo needs: {0}")]
    System(#[from] io::Error),
    #[error("interrupted")]
    Interrupted(Signal),
    #[error("timed out: did not see {0}")]
    TimedOut(&'static str),
    #[error("{0} {1}, and should not have")]
    WrongEnd(&'static str, Ended),
    #[error("the record can't be read: {0}")]
    Record(#[from] ReadError),
}

/// Runs the demo, and returns status 0 if every check holds.
pub(crate) fn main(demo: &DemoArgs) -> ExitCode {
    match run(demo) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader of standard output has gone, as `head` does.
        Err(DemoError::System(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("demo: {refusal}");
            match refusal {
                DemoError::Ttl(_) => exit::MISUSE.into(),
                DemoError::Interrupted(signal) => exit::die_of(signal),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// How often the demo is played on a machine that stalls.
const TRIES: usize = 3;

fn run(demo: &DemoArgs) -> Result<bool, DemoError> {
    let family = Family::of_this_process()?;
    // Guardians that are killed leave processes behind, which become children of the demo. It ends them (I9).
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    // Before there is anything to clean up.
    let mut signals = Signals::catch()?;
    let mut tries = 1;
    loop {
        let played = Played::of(demo, family, &mut signals)?;
        let Stall { length, step } = played.stall;
        if played.results.are_inconclusive(length, demo.ttl) && tries < TRIES {
            tries += 1;
            say!(
                "demo: this machine did not run for {} in step {step}, so the step shows nothing; from the beginning \
                 (try {tries} of {TRIES})",
                checks::seconds(length)
            );
            continue;
        }
        return played.report(demo);
    }
}

/// A demo that was played, and its files.
#[derive(Debug)]
struct Played {
    results: Results,
    stall: Stall,
    storage: String,
    folder: TempDir,
}

impl Played {
    /// Plays it.
    fn of(demo: &DemoArgs, family: Family, signals: &mut Signals) -> Result<Self, DemoError> {
        // In memory, unless TMPDIR is set: the demo does not show the speed of a busy disk.
        let mut builder = Builder::new();
        builder.prefix("vvm-demo-");
        let in_memory = env::var_os("TMPDIR").is_none().then(|| builder.tempdir_in("/dev/shm"));
        let folder = in_memory.and_then(Result::ok).map_or_else(|| builder.tempdir(), Ok);
        let folder = folder.map_err(DemoError::Folder)?;
        // On an overlay, too: all candidates see this folder.
        let storage = format!("sqlite:{}?allow=overlay", folder.path().join("elections.db").display());
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let record = Record::open(&storage, runtime, SystemClock::start()?)?;
        let least = record.storage.limits().min_ttl;
        if demo.ttl.get() < least {
            return Err(BeyondLimits::Ttl { ttl: demo.ttl, least }.into());
        }
        let [a, b, c] = ["A", "B", "C"].map(|name| Candidate::new(name, folder.path()));
        let mut run = Run::new(&storage, demo.ttl, family, signals, record, [a?, b?, c?], !demo.json);
        let played = run.play();
        end_all(&Containment::by_family(family), drop, drop);
        let Run { mut candidates, record, moments, stall, .. } = run;
        record.close();
        let early = match played {
            Err(error @ DemoError::Interrupted(_)) => return Err(error),
            played => played.err().map(|error| error.to_string()),
        };

        let mut work = Vec::new();
        for candidate in &mut candidates {
            // No worker is left that writes.
            candidate.new_lines()?;
            if !candidate.log.ends_with_a_line() {
                return Err(io::Error::other("the last line of a worker's log is not whole").into());
            }
            work.append(&mut candidate.work);
        }
        work.sort_by_key(|period: &WorkPeriod| period.first);
        let results = Results::of(&moments, &work, demo.ttl, early.as_deref());
        Ok(Self { results, stall, storage, folder })
    }

    /// Prints the checks. Returns whether all hold.
    fn report(self, demo: &DemoArgs) -> Result<bool, DemoError> {
        if demo.json {
            writeln!(io::stdout(), "{}", self.results.summary)?;
        } else {
            // Fails if the reader has gone.
            writeln!(io::stdout())?;
            vvm(["history", "--storage", &self.storage, "--name", NAME]).status()?;
            let palette = Palette::of_standard_output();
            for check in &self.results.checks {
                let (sign, style) = if check.holds { ("✓", Style::Good) } else { ("✗", Style::Bad) };
                writeln!(io::stdout(), "{}", palette.paint(&format!("  {sign} {}", check.text), style))?;
            }
        }
        let holds = self.results.hold();
        if !holds {
            let Stall { length, step } = self.stall;
            if self.results.are_inconclusive(length, demo.ttl) {
                let length = checks::seconds(length);
                say!(
                    "demo: inconclusive: this machine did not run for {length} in step {step}; try it on a calmer one"
                );
            }
            say!("demo: a check failed; the files of the run are kept in {}", self.folder.keep().display());
        }
        Ok(holds)
    }
}

/// Demonstrate fail-over: three vvm run processes on a temporary file, a crash, a clean stop, and a hang.
///
/// Measures how long each change of leaders takes, and checks by the workers' own logs that no two worked at
/// once. Takes about five TTLs. Exits with 0 if every check holds, otherwise with 1. Begins again, at most twice, if
/// this machine stalled for so long that a check shows nothing. Removes its files, unless a check fails.
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
