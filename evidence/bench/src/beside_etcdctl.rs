//! `vvm run` beside `etcdctl lock`, in one run on one machine: the time until the next command runs, and the
//! cost of waiting.

mod compared_program;
mod comparison;
mod process_tree;
mod succession;
mod waiting;

use compared_program::ComparedProgram;
use comparison::{Comparison, Sample};
use servers::etcd::Etcd;
use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    time::Duration,
};
use succession::Blow;

/// The TTL of both.
const TTL: Duration = Duration::from_secs(5);

/// The subcommand that makes this program the command of a trial.
const WORK: &str = "etcdctl-work";

/// When a command ends by itself: longer than any trial.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs all trials, and writes the table, or its samples.
///
/// # Errors
/// A trial can't be run. Without etcd, the error names what to install.
pub(crate) fn run(out: &mut impl io::Write, quick: bool, json: bool) -> Result<(), Box<dyn Error>> {
    let etcd = Etcd::start()?;
    let folder = tempfile::tempdir()?;
    let vvm = env::current_exe()?.with_file_name("vvm");
    let storage = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
    let theirs = ComparedProgram::etcdctl(&etcd);
    let ours = ComparedProgram::vvm(&vvm, &storage, "SQLite");
    let (trials, watched) = if quick { (1, Duration::from_secs(5)) } else { (7, Duration::from_secs(60)) };

    let mut comparisons = Vec::new();
    for blow in Blow::ALL {
        let of = |compared_program: &ComparedProgram| {
            (0..trials)
                .map(|number| {
                    succession::trial(
                        compared_program,
                        blow,
                        &scene(folder.path(), compared_program, blow, number),
                    )
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let (theirs, ours) = (of(&theirs)?, of(&ours)?);
        let seconds = |all: &[succession::Outcome]| all.iter().map(|one| Sample::of(one.took)).collect();
        comparisons.push(Comparison::seconds(
            blow.title(),
            seconds(&theirs),
            seconds(&ours),
            blow.if_behind(),
        ));
        let both_ran = |all: &[succession::Outcome]| all.iter().filter(|one| one.both_ran).count();
        comparisons.push(Comparison::trials(
            "  the former command still ran, in trials",
            both_ran(&theirs),
            both_ran(&ours),
        ));
    }
    comparisons.extend(waiting::measure(&theirs, &ours, folder.path(), watched)?);
    if json {
        comparison::json(out, &comparisons)?
    } else {
        comparison::table(out, &theirs, &ours, &comparisons)?
    }
    Ok(())
}

/// The file in which the commands of a trial note that they run. Its name is also the lock's.
fn scene(folder: &Path, compared_program: &ComparedProgram, blow: Blow, number: usize) -> PathBuf {
    folder.join(format!("{}-{blow:?}-{number}", compared_program.program()))
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
