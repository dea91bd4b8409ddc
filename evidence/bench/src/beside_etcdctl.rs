//! `vvm run` beside `etcdctl lock`, in one run on one machine: how soon the next one's command runs, and what
//! waiting costs.
//!
//! What lives here: which trials there are. What doesn't: how either of the two is started ([`contestant`]),
//! one trial ([`succession`]), what somebody uses who waits ([`waiting`]), and the table ([`comparison`]).

mod comparison;
mod contestant;
mod family;
mod succession;
mod waiting;

use comparison::{Comparison, Sample};
use contestant::Contestant;
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

/// Of leases on both sides.
const TTL: Duration = Duration::from_secs(5);

/// What this program is told to be the command.
const WORK: &str = "etcdctl-work";

/// Longer than any trial may take: a command that nobody ends ends by itself.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs all trials, and writes the table, or its samples.
///
/// # Errors
/// Whatever keeps it from measuring; without etcd, what to install.
pub(crate) fn run(out: &mut impl io::Write, quick: bool, json: bool) -> Result<(), Box<dyn Error>> {
    let etcd = Etcd::start()?;
    let folder = tempfile::tempdir()?;
    let vvm = env::current_exe()?.with_file_name("vvm");
    let storage = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
    let theirs = Contestant::etcdctl(&etcd);
    let ours = Contestant::vvm(&vvm, &storage, "SQLite");
    let (trials, watched) = if quick { (1, Duration::from_secs(5)) } else { (7, Duration::from_secs(60)) };

    let mut comparisons = Vec::new();
    for blow in Blow::ALL {
        let of = |contestant: &Contestant| {
            (0..trials)
                .map(|number| {
                    succession::trial(contestant, blow, &scene(folder.path(), contestant, blow, number))
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

/// Where the commands of a trial say that they run. Its name is also what is locked.
fn scene(folder: &Path, contestant: &Contestant, blow: Blow, number: usize) -> PathBuf {
    folder.join(format!("{}-{blow:?}-{number}", contestant.program()))
}

/// The command: says since when it runs and who it is, and does nothing more.
///
/// # Errors
/// When the file can't be written.
pub(crate) fn work(file: &Path) -> io::Result<()> {
    let since = vvm_clock::SystemClock::read().as_nanos();
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{since} {}\n", process::id()).as_bytes())?;
    vvm_clock::SystemClock::block_for(LONGEST);
    Ok(())
}
