//! `kills safety fugitives`: workers that try to escape containment, and how long they outlive the host.
//!
//! Tries every kind of worker, every way to end guardian and host, and every level of containment that this
//! machine has. Fails if a process outlives the host (or the killed guardian) by more than `--at-most-ms`
//! where the level promises that none does. Other times are printed as not promised.

use super::processes::{self, Marked};
use clap::Args;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::{
    fs, io,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

/// How many trials a line without a promise has. Each may last until it is given up.
const WITHOUT_A_PROMISE: usize = 3;

/// The trials to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// How many of each kind; at most three where nothing is promised.
    #[arg(long, default_value_t = 20)]
    trials: usize,
    /// Only lines that contain this, e.g. pidns, or storm.
    #[arg(long)]
    only: Option<String>,
}

/// The results of one kind of trial.
struct Line {
    title: String,
    promised: bool,
    /// The longest time that keeps the promise.
    most: Duration,
    /// Sorted; `None` for a process that did not end.
    took: Vec<Option<Duration>>,
}

/// Runs them. Returns whether all promises were kept.
pub(crate) fn run(vvm: &Path, options: &Options, most: Duration) -> io::Result<bool> {
    println!("load {}", load()?);
    let mut kept = true;
    let mut lines = 0;
    for setting in SETTINGS {
        if let Some(refusal) = setting.refusal(vvm)? {
            println!("{}: not available here: {refusal}", setting.title());
            continue;
        }
        for (kind, ending) in KINDS.into_iter().flat_map(|kind| Ending::ALL.map(|ending| (kind, ending))) {
            let title = format!("{}; {}; {}", setting.title(), kind.title, ending.title());
            if options.only.as_ref().is_some_and(|only| !title.contains(only.as_str())) {
                continue;
            }
            if kind.needs_root && !geteuid().is_root() {
                println!("{title}: not run: needs root");
                continue;
            }
            let mut line = Line { title, promised: setting.promises(kind, ending), most, took: Vec::new() };
            line.measure(options.trials, || trial(vvm, setting, kind, ending))?;
            println!("{line}");
            kept &= line.is_kept();
            lines += 1;
        }
    }
    println!("{lines} lines; load {}", load()?);
    if lines == 0 {
        println!("no trial matched");
    }
    Ok(kept && lines > 0)
}

impl Line {
    fn measure(&mut self, trials: usize, trial: impl Fn() -> io::Result<Option<Duration>>) -> io::Result<()> {
        let trials = if self.promised { trials } else { trials.min(WITHOUT_A_PROMISE) };
        self.took = (0..trials).map(|_| trial()).collect::<io::Result<Vec<_>>>()?;
        self.took.sort_by_key(|took| took.unwrap_or(Duration::MAX));
        Ok(())
    }

    fn is_kept(&self) -> bool {
        !self.promised || self.took.iter().all(|took| took.is_some_and(|took| took <= self.most))
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |took: Option<&Option<Duration>>| match took {
            Some(Some(took)) => format!("{:.1} ms", took.as_secs_f64() * 1e3),
            Some(None) => "never".into(),
            None => "-".into(),
        };
        let verdict = match (self.promised, self.is_kept()) {
            (true, true) => "kept",
            (true, false) => "BROKEN",
            (false, _) => "not promised",
        };
        let (median, most) = (text(self.took.get(self.took.len() / 2)), text(self.took.last()));
        write!(out, "{}: {} trials, median {median}, most {most}: {verdict}", self.title, self.took.len())
    }
}

/// Returns the load average of the last minute and the number of processors.
fn load() -> io::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let processors = std::thread::available_parallelism()?;
    Ok(format!("{} on {processors} processors", text.split(' ').next().unwrap_or_default()))
}

/// A worker that tries to escape containment.
#[derive(Clone, Copy, Debug)]
struct Kind {
    title: &'static str,
    /// A shell script.
    script: &'static str,
    /// The least number of its processes once it is set up.
    processes: usize,
    needs_root: bool,
    /// It forks as fast as it can.
    storms: bool,
}

/// All of them.
const KINDS: [Kind; 6] = [
    Kind::of("own session", "setsid sleep 1000 & wait", 2),
    Kind::of("double fork", "(setsid sh -c 'sleep 1000 & :' &); exec sleep 1001", 2),
    Kind {
        needs_root: true,
        ..Kind::of(
            "another user",
            "setpriv --reuid 65534 --clear-groups sleep 1000 &
             exec setpriv --reuid 65534 --clear-groups sleep 1001",
            2,
        )
    },
    Kind::of("ignores TERM", "trap '' TERM HUP INT QUIT; setsid sleep 1000 & sleep 1001 & wait", 3),
    Kind::of(
        "a tree of fifty",
        "for a in 1 2 3 4 5; do (for b in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done; wait) & done; wait",
        56,
    ),
    Kind {
        storms: true,
        ..Kind::of(
            "a storm of forks",
            "(setsid sh -c 'storm() { while :; do (:) & done; }; storm' &)
             (setsid sh -c 'next() { (next &); }; next' &); exec sleep 1001",
            2,
        )
    },
];

impl Kind {
    const fn of(title: &'static str, script: &'static str, processes: usize) -> Self {
        Self { title, script, processes, needs_root: false, storms: false }
    }
}

/// How guardian or host end or stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    HostKilled,
    GuardianKilled,
    HostStopped,
    BothStopped,
}

impl Ending {
    const ALL: [Self; 4] = [Self::HostKilled, Self::GuardianKilled, Self::HostStopped, Self::BothStopped];

    const fn title(self) -> &'static str {
        match self {
            Self::HostKilled => "host killed",
            Self::GuardianKilled => "guardian killed",
            Self::HostStopped => "host stopped",
            Self::BothStopped => "both stopped",
        }
    }
}

/// When a trial is given up: far longer than any bound.
const WATCHED: Duration = Duration::from_secs(3);
/// How long a worker may take to set up.
const STARTS: Duration = Duration::from_secs(30);

/// The environment variable that marks the processes of a trial.
const MARK: &str = "FUGITIVE";

/// The processes of a trial.
#[derive(Default)]
struct Found {
    guardian: Option<Pid>,
    host: Option<Pid>,
    of_worker: Vec<Pid>,
    all: Vec<Pid>,
}

/// Returns how long the worker's last process outlived the host, or the killed guardian. `None` if it still
/// ran at the end.
fn trial(vvm: &Path, setting: Setting, kind: Kind, ending: Ending) -> io::Result<Option<Duration>> {
    let folder = tempfile::tempdir()?;
    let mark = folder.path().display().to_string();
    let mut command = setting.command(vvm, folder.path(), &["sh", "-c", kind.script]);
    command.env(MARK, &mark).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let took = inject(&mark, kind, ending);
    clean_up(&mut child, &mark)?;
    took
}

fn inject(mark: &str, kind: Kind, ending: Ending) -> io::Result<Option<Duration>> {
    let mut found = Found::default();
    let is_there = wait(STARTS, || {
        found = find(mark);
        found.of_worker.len() >= kind.processes
    });
    let (Some(_), Some(guardian), Some(host)) = (is_there, found.guardian, found.host) else {
        return Err(io::Error::other(format!("the worker did not start: {}", kind.title)));
    };
    match ending {
        Ending::HostKilled => kill_process(host, Signal::KILL)?,
        Ending::GuardianKilled => kill_process(guardian, Signal::KILL)?,
        Ending::HostStopped => kill_process(host, Signal::STOP)?,
        Ending::BothStopped => {
            kill_process(guardian, Signal::STOP)?;
            kill_process(host, Signal::STOP)?;
        }
    }
    let target = if ending == Ending::GuardianKilled { guardian } else { host };
    if wait(STARTS, || processes::has_ended(target.as_raw_nonzero().get())).is_none() {
        return Err(io::Error::other(format!("{} outlived the deadline", ending.title())));
    }
    Ok(wait(WATCHED, || find(mark).of_worker.is_empty()))
}

/// Looks until `condition` holds. Returns how long that took, or `None` after the limit.
fn wait(most: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let began = SystemClock::read();
    loop {
        if condition() {
            return Some(SystemClock::read().since(began));
        }
        if SystemClock::read().since(began) > most {
            return None;
        }
        // A pause, so that the looks don't take the processor from the processes.
        SystemClock::block_for(Duration::from_millis(1));
    }
}

/// Finds every process with the mark in its environment. The environment of a zombie is empty.
fn find(mark: &str) -> Found {
    let variable = format!("{MARK}={mark}").into_bytes();
    let mut found = Found::default();
    for Marked { pid, words } in processes::marked(|one| one == variable) {
        found.all.push(pid);
        let mut words = words.iter().map(String::as_str);
        match (words.next(), words.next()) {
            (Some("vvm"), Some("run")) => found.guardian = Some(pid),
            (Some("vvm"), Some("stage-host")) => found.host = Some(pid),
            // The keeper and its helpers are parts of vvm; a shim becomes the worker.
            (Some("vvm"), Some("stage-keeper" | "stage-namespace" | "stage-init")) | (Some("unshare"), _) => {
            }
            _ => found.of_worker.push(pid),
        }
    }
    found
}

fn clean_up(child: &mut Child, mark: &str) -> io::Result<()> {
    if let Some(guardian) = find(mark).guardian {
        // A stopped process continues, and cleans up.
        let _ = kill_process(guardian, Signal::CONT);
        let _ = wait(WATCHED, || find(mark).all.is_empty());
    }
    // This kills stopped processes, too. A storm of forks may need several rounds.
    let all_gone = wait(STARTS, || {
        let found = find(mark);
        for pid in &found.all {
            let _ = kill_process(*pid, Signal::KILL);
        }
        found.all.is_empty()
    });
    child.wait()?;
    all_gone.map(drop).ok_or_else(|| io::Error::other("processes of a trial can't be killed"))
}

/// A level of containment, outside or as process 1 of a PID namespace.
#[derive(Clone, Copy, Debug)]
struct Setting {
    level: &'static str,
    is_first: bool,
}

/// All of them.
const SETTINGS: [Setting; 5] = [
    Setting { level: "guardian", is_first: false },
    Setting { level: "cgroup", is_first: false },
    Setting { level: "pidns", is_first: false },
    Setting { level: "guardian", is_first: true },
    Setting { level: "pidns", is_first: true },
];

impl Setting {
    fn title(self) -> String {
        format!("{}{}", self.level, if self.is_first { " as process 1" } else { "" })
    }

    /// Whether every process must end with the host.
    fn promises(self, kind: Kind, ending: Ending) -> bool {
        // The kernel kills a namespace when its process 1 ends. A stopped process 1 can't clean up.
        let ends_with_it = self.is_first && ending == Ending::GuardianKilled;
        match self.level {
            "pidns" => true,
            _ if ends_with_it => true,
            "cgroup" => ending != Ending::BothStopped,
            _ => ending != Ending::BothStopped && !kind.storms,
        }
    }

    /// Returns the command line of `vvm run` here, on a storage in `folder`.
    fn command(self, vvm: &Path, folder: &Path, worker: &[&str]) -> Command {
        let mut command = if self.is_first {
            let mut unshare = Command::new("unshare");
            unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(vvm);
            unshare
        } else {
            Command::new(vvm)
        };
        let storage = format!("sqlite:{}?allow=overlay", folder.join("storage.db").display());
        command.args(["run", "--storage", &storage, "--name", "fugitives", "--ttl", "1s"]);
        command.args(["--containment", self.level, "--"]).args(worker).stdin(Stdio::null());
        command
    }

    /// Returns why this machine does not have it.
    fn refusal(self, vvm: &Path) -> io::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        let output = self.command(vvm, folder.path(), &["true"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((!output.status.success()).then_some(said))
    }
}
