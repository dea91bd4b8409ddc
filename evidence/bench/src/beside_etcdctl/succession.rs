//! One trial: somebody holds, somebody waits, something happens to the first, and the second one's command
//! runs.

use super::{contestant::Contestant, family::Family};
use rustix::process::Signal;
use std::{error::Error, fs, path::Path, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How long a process may take to open its storage and lead.
const STARTS: Duration = Duration::from_secs(30);

/// The second one has waited for so long, and up to a second more, so that no trial begins at the same point
/// between two looks.
const WAITED: Duration = Duration::from_millis(2500);

/// What does not happen within three TTLs does not happen.
const GIVES_UP: Duration = Duration::from_secs(15);

/// What happens to the holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blow {
    TermToOne,
    TermToAll,
    KillOne,
    KillAll,
}

impl Blow {
    pub(crate) const ALL: [Self; 4] = [Self::TermToOne, Self::TermToAll, Self::KillOne, Self::KillAll];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::TermToOne => "clean hand-over, SIGTERM to the program",
            Self::TermToAll => "clean hand-over, SIGTERM to all its processes",
            Self::KillOne => "crash, kill -9 of the program",
            Self::KillAll => "crash, kill -9 of all its processes",
        }
    }

    /// Why `vvm` is behind, where it is.
    pub(crate) fn if_behind(self) -> &'static str {
        match self {
            // Our host outlives the program, and hands over.
            Self::TermToOne | Self::TermToAll | Self::KillOne => {
                "one that is told of a release on its own machine still looks, claims, and looks for a pause, on disk"
            }
            Self::KillAll => {
                "a standby counts the TTL from when it saw the last renewal, for which it trusts no server's clock"
            }
        }
    }

    fn strike(self, holder: &Family) {
        match self {
            Self::TermToOne => holder.signal_first(Signal::TERM),
            Self::TermToAll => holder.signal_all(Signal::TERM),
            Self::KillOne => holder.signal_first(Signal::KILL),
            Self::KillAll => holder.kill_at_once(),
        }
    }
}

/// What came of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Until the second one's command ran; `None` if it never did.
    pub(crate) took: Option<Duration>,
    /// Whether the first one's command still ran then.
    pub(crate) both_ran: bool,
}

/// A command, as it has written down itself.
#[derive(Clone, Copy)]
struct Work {
    since: Instant,
    process: i32,
}

pub(crate) fn trial(contestant: &Contestant, blow: Blow, scene: &Path) -> Result<Outcome, Box<dyn Error>> {
    let first = contestant.start(scene, 1)?;
    let Some(work) = wait_for_work(scene, 0, STARTS) else {
        let last_words = first.process.last_words();
        return Err(format!("{} does not run its command: {last_words}", contestant.title()).into());
    };
    let second = contestant.start(scene, 2)?;
    SystemClock::block_for(WAITED + Duration::from_millis(fastrand::u64(..1000)));
    if works(scene).len() > 1 {
        return Err(format!("{}: two commands at once, and nothing has happened", contestant.title()).into());
    }
    let holder = first.family();
    let struck = SystemClock::read();
    blow.strike(&holder);
    let next = wait_for_work(scene, 1, GIVES_UP);
    let both_ran = next.is_some() && acts(work.process);
    // What a killed program has left running, nobody else ends.
    holder.kill_at_once();
    drop((first, second));
    Ok(Outcome { took: next.map(|next| struck.until(next.since)), both_ran })
}

/// The command that runs after so many others, once it does.
fn wait_for_work(scene: &Path, after: usize, patience: Duration) -> Option<Work> {
    let began = SystemClock::read();
    while SystemClock::read().since(began) < patience {
        if let Some(work) = works(scene).get(after) {
            return Some(*work);
        }
        // The pace of looking; when the command began it says itself.
        SystemClock::block_for(Duration::from_millis(1));
    }
    None
}

fn works(scene: &Path) -> Vec<Work> {
    let said = fs::read_to_string(scene).unwrap_or_default();
    let work = |line: &str| {
        let (since, process) = line.split_once(' ')?;
        Some(Work { since: Instant::from_nanos(since.parse().ok()?), process: process.parse().ok()? })
    };
    // A line that is still being written has no end.
    said.split_inclusive('\n').filter_map(|line| work(line.strip_suffix('\n')?)).collect()
}

/// A zombie acts no more.
fn acts(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    // The name may contain blanks and brackets; the last bracket ends it (proc(5)).
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}
