//! One trial: one candidate holds, one waits, the holder is ended, and the waiting one's command runs.

use super::{
    Failure,
    compared_program::ComparedProgram,
    process_tree::{ProcessTree, send},
};
use harness::MemoryGroup;
use rustix::process::{Pid, Signal};
use std::{fs, path::Path, process, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How long a process may take to open its storage and lead.
const STARTS: Duration = Duration::from_secs(30);

/// How long the second one waits before the trial.
const WAITED: Duration = Duration::from_millis(2500);

/// Plus up to so many milliseconds at random, so that trials begin at different points between two looks, and
/// not all at once.
const SPREAD: u64 = 5000;

/// When a trial is given up, in TTLs.
const GIVES_UP: u32 = 3;

/// How the holder is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blow {
    TermToOne,
    TermToAll,
    KillOne,
    OutOfMemory,
    Hang,
    KillAll,
}

impl Blow {
    pub(crate) const ALL: [Self; 6] =
        [Self::TermToOne, Self::TermToAll, Self::KillOne, Self::OutOfMemory, Self::Hang, Self::KillAll];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::TermToOne => "TERM to the program",
            Self::TermToAll => "TERM to all its processes",
            Self::KillOne => "kill -9 of the program",
            Self::OutOfMemory => "out of memory, for the process that renews",
            Self::Hang => "hang: the process that renews is stopped",
            Self::KillAll => "kill -9 of all its processes, as of a machine",
        }
    }

    /// For the names of elections: of small letters and hyphens.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TermToOne => "term",
            Self::TermToAll => "term-all",
            Self::KillOne => "kill",
            Self::OutOfMemory => "memory",
            Self::Hang => "hang",
            Self::KillAll => "kill-all",
        }
    }

    /// Why `vvm` is slower, if it is.
    pub(crate) fn if_behind(self) -> &'static str {
        match self {
            // Our host or guardian outlives the other and hands over.
            Self::TermToOne | Self::TermToAll | Self::KillOne | Self::OutOfMemory => {
                "a standby that is woken still looks, claims, and checks for a pause"
            }
            Self::Hang => "a host that hangs is killed at its deadline, and its guardian releases then",
            Self::KillAll => {
                "a standby counts the TTL from when it saw the last renewal: it trusts no server's clock"
            }
        }
    }

    fn strike(self, holder: &ProcessTree, renewing: Pid, scene: &Path) -> Result<(), Failure> {
        match self {
            Self::TermToOne => holder.signal_first(Signal::TERM),
            Self::TermToAll => holder.signal_all(Signal::TERM),
            Self::KillOne => holder.signal_first(Signal::KILL),
            Self::OutOfMemory => {
                let name = scene.file_name().unwrap_or_default().display();
                MemoryGroup::of(&format!("bench-{}-{name}", process::id()))?.exhaust(renewing);
            }
            Self::Hang => send(renewing, Signal::STOP),
            Self::KillAll => holder.kill_at_once(),
        }
        Ok(())
    }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The time until the second one's command ran; `None` if it never did.
    pub(crate) took: Option<Duration>,
    /// Whether the first one's command still ran then.
    pub(crate) both_ran: bool,
}

/// A command, from its line in the file.
#[derive(Clone, Copy)]
struct Work {
    since: Instant,
    process: i32,
}

pub(crate) fn trial(
    compared_program: &ComparedProgram,
    blow: Blow,
    scene: &Path,
    ttl: Duration,
) -> Result<Outcome, Failure> {
    let first = compared_program.start(scene, ttl, 1)?;
    let Some(work) = wait_for_work(scene, 0, STARTS) else {
        let log_end = first.process.log_end();
        return Err(format!("{} does not run its command: {log_end}", compared_program.title()).into());
    };
    let second = compared_program.start(scene, ttl, 2)?;
    SystemClock::block_for(WAITED + Duration::from_millis(fastrand::u64(..SPREAD)));
    if works(scene).len() > 1 {
        return Err(
            format!("{}: two commands at once, and nothing has happened", compared_program.title()).into()
        );
    }
    let holder = first.process_tree();
    let Some(renewing) = compared_program.renewing(&holder) else {
        return Err(format!("{} has no process that renews", compared_program.title()).into());
    };
    let struck = SystemClock::read();
    blow.strike(&holder, renewing, scene)?;
    let next = wait_for_work(scene, 1, ttl * GIVES_UP);
    let both_ran = next.is_some() && acts(work.process);
    // Ends the command that a killed program has left running.
    holder.kill_at_once();
    drop((first, second));
    Ok(Outcome { took: next.map(|next| struck.until(next.since)), both_ran })
}

/// Waits until so many commands have begun, and returns the last.
fn wait_for_work(scene: &Path, after: usize, patience: Duration) -> Option<Work> {
    let began = SystemClock::read();
    while SystemClock::read().since(began) < patience {
        if let Some(work) = works(scene).get(after) {
            return Some(*work);
        }
        // Between two looks. The command itself notes when it began.
        SystemClock::block_for(Duration::from_millis(5));
    }
    None
}

fn works(scene: &Path) -> Vec<Work> {
    let said = fs::read_to_string(scene).unwrap_or_default();
    let work = |line: &str| {
        let (since, process) = line.split_once(' ')?;
        Some(Work { since: Instant::from_nanos(since.parse().ok()?), process: process.parse().ok()? })
    };
    // A line that is still being written has no line break.
    said.split_inclusive('\n').filter_map(|line| work(line.strip_suffix('\n')?)).collect()
}

/// Whether a process runs. A zombie does not.
fn acts(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    // The name may contain blanks and brackets; the last bracket ends it (proc(5)).
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}
