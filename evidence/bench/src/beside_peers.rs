//! `vvm run` beside `etcdctl lock` and client-go's leader election, in one run on one machine: the time until
//! the next command works, and the cost of waiting.
//!
//! Each stands beside `vvm` on its own server, and `vvm` on SQLite beside both.

mod compared_program;
mod comparison;
mod process_tree;
mod succession;
mod waiting;

pub(crate) use process_tree::ProcessTree;

use compared_program::ComparedProgram;
use comparison::{Column, Comparison, Sample};
use harness::MemoryGroup;
use servers::{client_go, etcd::Etcd, kubernetes::Kubernetes};
use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};
use succession::{Blow, Outcome};

/// The subcommand that makes this program the command of a trial.
const WORK: &str = "peers-work";

/// When a command ends by itself: longer than any trial.
const LONGEST: Duration = Duration::from_secs(600);

/// An error of a trial, which may have a thread of its own.
type Failure = Box<dyn Error + Send + Sync>;

/// Runs all trials, and writes the table, or its samples.
///
/// # Errors
/// A trial can't be run. Without etcd, the error names what to install.
pub(crate) fn run(out: &mut impl io::Write, quick: bool, json: bool) -> Result<(), Failure> {
    let (ttl, trials, watched) = if quick { (3, 1, 5) } else { (15, 3, 60) };
    let (ttl, watched) = (Duration::from_secs(ttl), Duration::from_secs(watched));
    let folder = tempfile::tempdir()?;
    let etcd = Etcd::start()?;
    let kubernetes = match start_kubernetes() {
        Ok(kubernetes) => Some(kubernetes),
        Err(error) => {
            eprintln!("client-go is left out: {error}");
            None
        }
    };
    let mut programs =
        vec![ComparedProgram::etcdctl(&etcd), ComparedProgram::vvm("etcd", &etcd.storage("bench"))?];
    if let Some((server, program)) = &kubernetes {
        programs.push(ComparedProgram::client_go(program, server));
        programs.push(ComparedProgram::vvm("k8s", &server.url("default"))?);
    }
    let file = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
    programs.push(ComparedProgram::vvm("sqlite", &file)?);

    let mut comparisons = Vec::new();
    for blow in Blow::ALL {
        if blow == Blow::OutOfMemory
            && let Err(error) = MemoryGroup::of(&format!("bench-{}", process::id()))
        {
            eprintln!("{} is left out: {error}", blow.title());
            continue;
        }
        let outcomes = at_once(&programs, blow, folder.path(), ttl, trials)?;
        let columns = |of: fn(&[Outcome]) -> Vec<Sample>| {
            programs.iter().zip(&outcomes).map(|(program, all)| Column::of(program, of(all))).collect()
        };
        let seconds = columns(|all| all.iter().map(|one| Sample::of(one.took)).collect());
        comparisons.push(Comparison::new(blow.title(), "s", seconds, blow.if_behind()));
        let still = "  the former command was still at work, in trials";
        let both = columns(|all| vec![Sample(Some(all.iter().filter(|one| one.both_ran).count() as f64))]);
        comparisons.push(Comparison::new(still, "", both, "of a bug: report it"));
    }
    comparisons.extend(waiting::measure(&programs, folder.path(), ttl, watched)?);
    if json {
        comparison::json(out, &comparisons)?
    } else {
        comparison::table(out, ttl, &comparisons)?
    }
    Ok(())
}

fn start_kubernetes() -> Result<(Kubernetes, PathBuf), Box<dyn Error>> {
    // First, because it fails at once where kube-apiserver was never built.
    let server = Kubernetes::start()?;
    Ok((server, client_go::program()?))
}

/// Runs so many trials of each program, all at the same time: they wait for most of it. Returns the outcomes
/// by program. The thread of a trial outlives its candidates, which the kernel would end with it.
fn at_once(
    programs: &[ComparedProgram],
    blow: Blow,
    folder: &Path,
    ttl: Duration,
    trials: usize,
) -> Result<Vec<Vec<Outcome>>, Failure> {
    thread::scope(|scope| {
        let begin = |program, number| {
            scope.spawn(move || {
                let scene =
                    folder.join(format!("{}-{}-{number}", ComparedProgram::name(program), blow.name()));
                succession::trial(program, blow, &scene, ttl)
            })
        };
        let running: Vec<Vec<_>> = programs
            .iter()
            .map(|program| (0..trials).map(|number| begin(program, number)).collect())
            .collect();
        let end = |trial: thread::ScopedJoinHandle<'_, Result<Outcome, Failure>>| {
            trial.join().unwrap_or_else(|_| Err("a trial panicked".into()))
        };
        running.into_iter().map(|trials| trials.into_iter().map(end).collect()).collect()
    })
}

/// The command: notes its start time and process id, and sleeps.
///
/// # Errors
/// The file can't be written.
pub(crate) fn work(file: &Path) -> io::Result<()> {
    let since = vvm_clock::SystemClock::read().as_nanos();
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{since} {}\n", process::id()).as_bytes())?;
    vvm_clock::SystemClock::block_for(LONGEST);
    Ok(())
}

/// `vvm`, which was built into the folder of this program.
fn vvm() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("vvm"))
}
