//! `vvm run` beside `etcdctl lock` and client-go's leader election, in one run on one machine: the time until
//! the next command works, and the cost of waiting.
//!
//! Each stands beside `vvm` on its own server, and `vvm` on SQLite beside both.

use crate::{
    process::{self, init_storage},
    report::{Failure, Figure, Unit},
};
use harness::{MemoryGroup, has_ended};
use rustix::process::{Pid, Signal, kill_process};
use servers::{
    built::{CLIENT_GO, CLIENT_GO_VERSION},
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
    owned::{self, Owned, StartError},
};
use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The subcommand that makes this program the command of a trial.
const WORK: &str = "peers-work";

/// When a command ends by itself: longer than any trial.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs all trials.
///
/// # Errors
/// A trial can't be run. Without etcd, the error names what to install.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (ttl, trials, watched) = if quick { (3, 1, 5) } else { (15, 3, 60) };
    let (ttl, watched) = (Duration::from_secs(ttl), Duration::from_secs(watched));
    let folder = tempfile::tempdir()?;
    let installed = Program::installed_with_client()?;
    let etcd = Cluster::start(&installed, 1)?;
    let kubernetes = match start_kubernetes() {
        Ok(kubernetes) => Some(kubernetes),
        Err(error) => {
            eprintln!("client-go is left out: {error}");
            None
        }
    };
    let addresses = etcd.addresses();
    let mut programs = vec![
        ComparedProgram::etcdctl(&addresses, installed.version()),
        ComparedProgram::vvm("etcd", &format!("etcd://{addresses}/bench"))?,
    ];
    if let Some((server, program)) = &kubernetes {
        programs.push(ComparedProgram::client_go(program, server));
        programs.push(ComparedProgram::vvm("k8s", &server.url("default"))?);
    }
    let file = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
    programs.push(ComparedProgram::vvm("sqlite", &file)?);

    let mut figures = Vec::new();
    for blow in Blow::ALL {
        if blow == Blow::OutOfMemory
            && let Err(error) = MemoryGroup::of(&format!("bench-{}", std::process::id()))
        {
            eprintln!("{} is left out: {error}", blow.title());
            continue;
        }
        let outcomes = at_once(&programs, blow, folder.path(), ttl, trials)?;
        let title = format!("next command, TTL {} s, after {}", ttl.as_secs(), blow.title());
        let seconds = |one: &Outcome| one.took.map_or(f64::INFINITY, |took| took.as_secs_f64());
        figures.extend(compare(&title, Unit::Seconds, &programs, |at| {
            outcomes[at].iter().map(seconds).collect()
        }));
        for (program, all) in programs.iter().zip(&outcomes) {
            let both = all.iter().filter(|one| one.both_ran).count() as f64;
            let name = format!("  the former command was still at work, in trials: {}", program.title());
            let both = Figure::new(name, Unit::Count, vec![both]);
            figures.push(if program.is_ours() { both.max_at_most(0.0) } else { both });
        }
    }
    figures.extend(waiting(&programs, folder.path(), ttl, watched)?);
    Ok(figures)
}

/// Returns a figure for each program. The goal of ours is the median of the best of the others.
fn compare(
    what: &str,
    unit: Unit,
    programs: &[ComparedProgram],
    samples: impl Fn(usize) -> Vec<f64>,
) -> Vec<Figure> {
    let figure = |(at, program): (usize, &ComparedProgram)| {
        Figure::new(format!("{what}: {}", program.title()), unit, samples(at))
    };
    let figures: Vec<Figure> = programs.iter().enumerate().map(figure).collect();
    let theirs = figures.iter().zip(programs).filter(|(_, program)| !program.is_ours());
    let best = theirs.map(|(figure, _)| figure.median()).fold(f64::INFINITY, f64::min);
    let judged = |(figure, program): (Figure, &ComparedProgram)| match program.is_ours() {
        true => figure.median_at_most(best),
        false => figure,
    };
    figures.into_iter().zip(programs).map(judged).collect()
}

fn start_kubernetes() -> Result<(Kubernetes, PathBuf), StartError> {
    // First, because it fails at once where kube-apiserver was never built.
    let server = Kubernetes::start()?;
    Ok((server, CLIENT_GO.build()?))
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
                let name = format!("{}-{blow:?}-{number}", ComparedProgram::name(program));
                let scene = folder.join(name.to_lowercase());
                trial(program, blow, &scene, ttl)
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
    file.write_all(format!("{since} {}\n", std::process::id()).as_bytes())?;
    vvm_clock::SystemClock::block_for(LONGEST);
    Ok(())
}

/// A program that runs a command while it holds a lease.
struct ComparedProgram {
    /// For names of elections, too: of small letters, digits and hyphens.
    name: String,
    title: String,
    program: PathBuf,
    how: How,
}

enum How {
    Etcdctl { endpoint: String },
    ClientGo { kubeconfig: PathBuf },
    Vvm { storage: String },
}

/// A running candidate. Dropping it kills it and all its descendants.
struct Candidate {
    process: Owned,
}

impl ComparedProgram {
    fn etcdctl(endpoint: &str, version: &str) -> Self {
        let how = How::Etcdctl { endpoint: endpoint.to_owned() };
        let title = format!("etcdctl ({version})");
        Self { name: "etcdctl".into(), title, program: "etcdctl".into(), how }
    }

    /// A candidate of client-go as `evidence/servers/client-go` has it.
    fn client_go(program: &Path, server: &Kubernetes) -> Self {
        let how = How::ClientGo { kubeconfig: server.kubeconfig() };
        let title = CLIENT_GO_VERSION.to_owned();
        Self { name: "client-go".into(), title, program: program.to_owned(), how }
    }

    /// `vvm run` on a storage, which is made ready.
    ///
    /// # Errors
    /// It can't be.
    fn vvm(scheme: &str, storage: &str) -> Result<Self, Failure> {
        init_storage(storage)?;
        let program = env::current_exe()?.with_file_name("vvm");
        let how = How::Vvm { storage: storage.to_owned() };
        Ok(Self { name: format!("vvm-{scheme}"), title: format!("vvm ({scheme}:)"), program, how })
    }

    /// Its name and storage, for the table.
    fn title(&self) -> &str {
        &self.title
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_ours(&self) -> bool {
        matches!(self.how, How::Vvm { .. })
    }

    /// Starts a candidate that runs the command of `scene` when it leads.
    fn start(&self, scene: &Path, ttl: Duration, number: usize) -> io::Result<Candidate> {
        let name = scene.file_name().unwrap_or_default();
        let mut command = owned::command(&self.program);
        match &self.how {
            How::Etcdctl { endpoint } => {
                // Before version 3.4, the default was another protocol.
                command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint, "lock"]).arg(name);
                command.args(["--ttl", &ttl.as_secs().to_string()]);
            }
            How::ClientGo { kubeconfig } => {
                command.arg("-kubeconfig").arg(kubeconfig).arg("-name").arg(name);
                command.args(["-id", &format!("candidate-{number}")]);
                command.args(["-ttl", &format!("{}s", ttl.as_secs()), "--"]);
            }
            How::Vvm { storage } => {
                command.args(["run", "--storage", storage, "--name"]).arg(name);
                command.args(["--ttl", &format!("{}s", ttl.as_secs()), "--"]);
            }
        }
        command.arg(env::current_exe()?).arg(WORK).arg(scene);
        let process = Owned::start(command, &scene.with_extension(format!("{number}.log")))?;
        Ok(Candidate { process })
    }

    /// The process that renews: the host of `vvm`, which its guardian has started.
    fn renewing(&self, candidate: &ProcessTree) -> Option<Pid> {
        if self.is_ours() { candidate.with_argument("stage-host") } else { candidate.first() }
    }
}

impl Candidate {
    /// The candidate and all its descendants.
    fn process_tree(&self) -> ProcessTree {
        ProcessTree::of(self.process.id().cast_signed())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.process_tree().kill_at_once();
    }
}

/// The first one is the ancestor.
pub(crate) struct ProcessTree(Vec<Pid>);

impl ProcessTree {
    pub(crate) fn of(ancestor: i32) -> Self {
        let mut all: Vec<Pid> = Pid::from_raw(ancestor).into_iter().collect();
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            // Any of its threads may have started a process.
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let children: Vec<_> =
                threads.map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
            let children = children.iter().flatten().flat_map(|children| children.split_whitespace());
            all.extend(children.filter_map(|child| Pid::from_raw(child.parse().ok()?)));
            next += 1;
        }
        Self(all)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> {
        self.0.iter().map(|pid| pid.as_raw_pid())
    }

    /// The ancestor.
    fn first(&self) -> Option<Pid> {
        self.0.first().copied()
    }

    /// The first one with this argument.
    fn with_argument(&self, argument: &str) -> Option<Pid> {
        self.0.iter().copied().find(|pid| words(*pid).iter().any(|word| word == argument.as_bytes()))
    }

    /// Sends a signal to the ancestor alone.
    fn signal_first(&self, signal: Signal) {
        if let Some(first) = self.0.first() {
            send(*first, signal);
        }
    }

    /// Sends a signal to each of them.
    fn signal_all(&self, signal: Signal) {
        self.0.iter().for_each(|pid| send(*pid, signal));
    }

    /// Stops all, then kills all, so that none reacts to the end of another.
    fn kill_at_once(&self) {
        self.signal_all(Signal::STOP);
        self.signal_all(Signal::KILL);
    }

    /// Whether one of them is the command of this scene.
    fn runs(&self, scene: &Path) -> bool {
        let scene = scene.as_os_str().as_encoded_bytes();
        let is_work = |pid: &Pid| {
            let words = words(*pid);
            words.len() > 2 && words[1] == WORK.as_bytes() && words[2] == scene
        };
        self.0.iter().any(is_work)
    }

    /// Their proportional memory (PSS), in bytes: shared pages are divided among their users.
    fn proportional_bytes(&self) -> Result<u64, Failure> {
        self.0.iter().map(|pid| Ok(process::memory_of(pid.as_raw_pid())?.proportional)).sum()
    }

    /// The sum of their resident memory, in bytes: shared pages count more than once.
    fn resident_bytes(&self) -> Result<u64, Failure> {
        self.0.iter().map(|pid| process::resident_bytes_of(&pid.to_string())).sum()
    }

    /// CPU time of all threads that run now.
    fn cpu_time(&self) -> Result<Duration, Failure> {
        self.0.iter().map(|pid| process::cpu_time_of(&pid.to_string())).sum()
    }
}

/// The command line of a process.
fn words(pid: Pid) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn send(pid: Pid, signal: Signal) {
    // It may have ended already.
    let _gone = kill_process(pid, signal);
}

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
enum Blow {
    TermToOne,
    TermToAll,
    KillOne,
    OutOfMemory,
    Hang,
    KillAll,
}

impl Blow {
    const ALL: [Self; 6] =
        [Self::TermToOne, Self::TermToAll, Self::KillOne, Self::OutOfMemory, Self::Hang, Self::KillAll];

    fn title(self) -> &'static str {
        match self {
            Self::TermToOne => "TERM to the program",
            Self::TermToAll => "TERM to all its processes",
            Self::KillOne => "kill -9 of the program",
            Self::OutOfMemory => "out of memory, for the process that renews",
            Self::Hang => "hang: the process that renews is stopped",
            Self::KillAll => "kill -9 of all its processes, as of a machine",
        }
    }

    fn strike(self, holder: &ProcessTree, renewing: Pid, scene: &Path) -> Result<(), Failure> {
        match self {
            Self::TermToOne => holder.signal_first(Signal::TERM),
            Self::TermToAll => holder.signal_all(Signal::TERM),
            Self::KillOne => holder.signal_first(Signal::KILL),
            Self::OutOfMemory => {
                let name = scene.file_name().unwrap_or_default().display();
                MemoryGroup::of(&format!("bench-{}-{name}", std::process::id()))?.exhaust(renewing);
            }
            Self::Hang => send(renewing, Signal::STOP),
            Self::KillAll => holder.kill_at_once(),
        }
        Ok(())
    }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The time until the second one's command ran; `None` if it never did.
    took: Option<Duration>,
    /// Whether the first one's command still ran then.
    both_ran: bool,
}

/// A command, from its line in the file.
#[derive(Clone, Copy)]
struct Work {
    since: Instant,
    process: Pid,
}

fn trial(
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
    let both_ran = next.is_some() && !has_ended(work.process);
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
        let process = Pid::from_raw(process.parse().ok()?)?;
        Some(Work { since: Instant::from_nanos(since.parse().ok()?), process })
    };
    // A line that is still being written has no line break.
    said.split_inclusive('\n').filter_map(|line| work(line.strip_suffix('\n')?)).collect()
}

/// How many candidates wait.
const WAITING: usize = 3;

/// Starting up is over by then.
const SETTLED: Duration = Duration::from_secs(5);

/// Measures one program after the other, not side by side.
fn waiting(
    programs: &[ComparedProgram],
    folder: &Path,
    ttl: Duration,
    watched: Duration,
) -> Result<Vec<Figure>, Failure> {
    let all: Vec<Vec<Used>> =
        programs.iter().map(|program| used(program, folder, ttl, watched)).collect::<Result<_, _>>()?;
    let line = |title, unit, of: fn(&Used) -> f64| {
        compare(title, unit, programs, |at| all[at].iter().map(of).collect())
    };
    let mut figures =
        line("memory of a waiting candidate, sum of RSS", Unit::Megabytes, |used| used.resident as f64 / 1e6);
    figures.extend(line("memory of a waiting candidate, PSS", Unit::Megabytes, |used| {
        used.proportional as f64 / 1e6
    }));
    figures.extend(line("CPU of a waiting candidate, each minute", Unit::Milliseconds, |used| {
        used.cpu.as_secs_f64() * 1e3
    }));
    Ok(figures)
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
    let scene = folder.join(format!("{}-waiting", compared_program.name));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn ours_is_compared_with_the_best_of_the_others_and_a_missing_event_is_last() {
        let program = |name: &str, how| {
            let (name, title) = (name.to_owned(), name.to_owned());
            ComparedProgram { name, title, program: PathBuf::new(), how }
        };
        let theirs = || How::Etcdctl { endpoint: String::new() };
        let ours = || How::Vvm { storage: String::new() };
        let programs =
            [program("a", theirs()), program("b", theirs()), program("c", ours()), program("d", ours())];
        let samples = [f64::INFINITY, 4.0, 5.0, 3.0];
        let figures = compare("x", Unit::Seconds, &programs, |at| vec![samples[at]]);
        let mut out = Vec::new();
        report::table(&mut out, &figures).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines[0].contains("never") && !lines[0].contains("met"), "{text}");
        assert!(lines[2].contains("median ≤ 4.00 s: not met"), "{text}");
        assert!(lines[3].contains("median ≤ 4.00 s: met"), "{text}");
    }
}
