//! Processes in /proc: whether one still runs, the tree of a `vvm`, and those with a mark in their environment.

use rustix::process::{Pid, Signal, kill_process};
use std::{fmt, fs};

/// A process, told apart from a later one with the same id by its start time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Process {
    pub(crate) number: i32,
    started: u64,
}

/// A process with a mark in its environment, which its descendants inherit.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    pub(crate) pid: Pid,
    /// The words of its command line; the first is the program without its folder.
    pub(crate) words: Vec<String>,
}

impl Process {
    pub(crate) fn of(number: i32) -> Option<Self> {
        Some(Self { number, started: stat(number)?.get(19)?.parse().ok()? })
    }

    /// Sends a signal. Returns whether it was there: its process id is not reused soon after it was found.
    pub(crate) fn signal(self, signal: Signal) -> bool {
        Pid::from_raw(self.number).is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    pub(crate) fn still_runs(self) -> bool {
        !has_ended(self.number) && Self::of(self.number) == Some(self)
    }
}

impl Marked {
    /// Whether it is a `vvm`: guardian, host, keeper, or the worker's process before it executes the worker.
    pub(crate) fn is_ours(&self) -> bool {
        self.words.first().is_some_and(|program| program == "vvm")
    }
}

/// The processes of one `vvm run` or `vvm once`, as far as they exist.
pub(crate) struct Tree {
    pub(crate) guardian: Process,
    pub(crate) host: Option<Process>,
    pub(crate) keeper: Option<Process>,
    pub(crate) worker: Option<Process>,
}

impl Tree {
    pub(crate) fn of(guardian: Process) -> Self {
        let first = |of: Process| {
            let path = format!("/proc/{0}/task/{0}/children", of.number);
            let children = fs::read_to_string(path).unwrap_or_default();
            Process::of(children.split_whitespace().next()?.parse().ok()?)
        };
        let host = first(guardian);
        let keeper = host.and_then(first);
        Self { guardian, host, keeper, worker: keeper.and_then(first) }
    }

    pub(crate) fn processes(&self, target: Target) -> Vec<Process> {
        let Self { guardian, host, keeper, worker } = *self;
        let processes = match target {
            Target::Guardian => vec![Some(guardian)],
            Target::Host => vec![host],
            Target::Keeper => vec![keeper],
            Target::Worker => vec![worker],
            Target::GuardianAndHost => vec![Some(guardian), host],
            Target::All => vec![Some(guardian), host, keeper, worker],
            Target::Terminal => Vec::new(),
        };
        processes.into_iter().flatten().collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    Guardian,
    Host,
    Keeper,
    Worker,
    GuardianAndHost,
    All,
    Terminal,
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
            Self::Host => "host",
            Self::Keeper => "keeper",
            Self::Worker => "worker",
            Self::GuardianAndHost => "guardian and host at once",
            Self::All => "all processes at once",
            Self::Terminal => "terminal",
        })
    }
}

/// Returns the state of a process and the fields behind it (proc(5)). `None` if there is no such process.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain blanks and brackets; the last bracket ends it.
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

pub(crate) fn has_ended(pid: i32) -> bool {
    stat(pid).is_none_or(|stat| matches!(stat[0].as_str(), "Z" | "X"))
}

pub(crate) fn parent(pid: i32) -> Option<i32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Returns every process with a variable for which `is_mark` holds. The environment of a zombie is empty.
pub(crate) fn marked(is_mark: impl Fn(&[u8]) -> bool) -> Vec<Marked> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let marked = pids.filter_map(|pid| {
        let read = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if !read("environ").split(|byte| *byte == 0).any(&is_mark) {
            return None;
        }
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        let mut words: Vec<String> = line.split_terminator('\0').map(str::to_owned).collect();
        if let Some(program) = words.first_mut() {
            *program = program.rsplit('/').next().unwrap_or_default().to_owned();
        }
        Some(Marked { pid, words })
    });
    marked.collect()
}
