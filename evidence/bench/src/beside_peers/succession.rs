//! One trial: one candidate holds, one waits, the holder is ended, and the waiting one's command runs.

use super::{
    Candidate, ComparedProgram, Failure, ProcessTree,
    comparison::{Column, Comparison, Sample},
    send,
};
use harness::MemoryGroup;
use rustix::process::{Pid, Signal};
use std::{fs, io, path::Path, process, time::Duration};
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

/// How many candidates wait.
const WAITING: usize = 3;

/// Starting up is over by then.
const SETTLED: Duration = Duration::from_secs(5);

const MEMORY: &str = "it has two processes";
const CPU: &str = "a standby looks once a second, and its server tells it nothing";

/// Measures one program after the other, not side by side.
pub(crate) fn measure(
    programs: &[ComparedProgram],
    folder: &Path,
    ttl: Duration,
    watched: Duration,
) -> Result<Vec<Comparison>, Failure> {
    let all = programs
        .iter()
        .map(|program| Ok((program, used(program, folder, ttl, watched)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let line = |title, unit, of: fn(&Used) -> f64, reason| {
        let samples = |used: &[Used]| used.iter().map(|used| Sample(Some(of(used)))).collect();
        let columns = all.iter().map(|(program, used)| Column::of(program, samples(used))).collect();
        Comparison::new(title, unit, columns, reason)
    };
    Ok(vec![
        line("memory of a waiting candidate, sum of RSS", "MB", |used| used.resident as f64 / 1e6, MEMORY),
        line("memory of a waiting candidate, PSS", "MB", |used| used.proportional as f64 / 1e6, MEMORY),
        line("CPU of a waiting candidate, each minute", "ms", |used| used.cpu.as_secs_f64() * 1e3, CPU),
    ])
}

struct Used {
    resident: u64,
    proportional: u64,
    /// In a minute.
    cpu: Duration,
}

fn used(
    compared_program: &ComparedProgram,
    folder: &Path,
    ttl: Duration,
    watched: Duration,
) -> Result<Vec<Used>, Failure> {
    let scene = folder.join(format!("{}-waiting", compared_program.name()));
    let start = |number| compared_program.start(&scene, ttl, number);
    let candidates = (0..=WAITING).map(start).collect::<io::Result<Vec<_>>>()?;
    SystemClock::block_for(SETTLED);
    let cpu = |candidate: &Candidate| candidate.process_tree().cpu_time();
    // The holder runs a command and is left out. There is exactly one.
    let waiting: Vec<&Candidate> =
        candidates.iter().filter(|candidate| !candidate.process_tree().runs(&scene)).collect();
    if waiting.len() != WAITING {
        return Err(format!(
            "{}: of {} candidates {} wait",
            compared_program.title(),
            WAITING + 1,
            waiting.len()
        )
        .into());
    }
    let before = waiting.iter().map(|one| cpu(one)).collect::<Result<Vec<_>, _>>()?;
    let began = SystemClock::read();
    SystemClock::block_for(watched);
    let minutes = began.until(SystemClock::read()).as_secs_f64() / 60.0;
    waiting
        .iter()
        .zip(before)
        .map(|(one, before)| {
            let process_tree = one.process_tree();
            Ok(Used {
                resident: process_tree.resident_bytes()?,
                proportional: process_tree.proportional_bytes()?,
                cpu: cpu(one)?.saturating_sub(before).div_f64(minutes),
            })
        })
        .collect()
}
