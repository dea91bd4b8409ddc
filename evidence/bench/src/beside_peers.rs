//! `vvm run` beside `etcdctl lock` and client-go's leader election, in one run on one machine: the time until the next
//! command works, and the cost of waiting. Each stands beside `vvm` on its own server, and `vvm` on SQLite beside both.

use crate::{
    process::{ProcessTree, Used, init_storage},
    report::{Failure, Figure, Unit},
    waiting::{self, QUANTITIES, SETTLED, WAITING},
};
use harness::{MemoryGroup, command_line, has_ended};
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

/// Without etcd, the error names what to install.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    Program::installed_with_client()?;
    Ok(measure_those_that_run(quick)?.0)
}

/// A peer or a blow that this machine can't run.
pub(crate) struct NotRun {
    pub(crate) what: &'static str,
    pub(crate) why: String,
}

pub(crate) fn measure_those_that_run(quick: bool) -> Result<(Vec<Figure>, Vec<NotRun>), Failure> {
    let (ttl, trials, watched) = if quick { (3, 1, 5) } else { (15, 3, 60) };
    let (ttl, watched) = (Duration::from_secs(ttl), Duration::from_secs(watched));
    let folder = tempfile::tempdir()?;
    let (mut programs, mut not_run) = (Vec::new(), Vec::new());
    let _etcd = match Program::installed_with_client() {
        Ok(installed) => {
            let etcd = Cluster::start(&installed, 1)?;
            let addresses = etcd.addresses();
            programs.push(ComparedProgram::etcdctl(&addresses, installed.version()));
            programs.push(ComparedProgram::vvm("etcd", &format!("etcd://{addresses}/bench"))?);
            Some(etcd)
        }
        Err(error) => {
            not_run.push(NotRun { what: "etcdctl", why: error.to_string() });
            None
        }
    };
    let _kubernetes = match start_kubernetes() {
        Ok((server, program)) => {
            programs.push(ComparedProgram::client_go(&program, &server));
            programs.push(ComparedProgram::vvm("k8s", &server.url("default"))?);
            Some(server)
        }
        Err(error) => {
            not_run.push(NotRun { what: "client-go", why: error.to_string() });
            None
        }
    };
    let file = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
    programs.push(ComparedProgram::vvm("sqlite", &file)?);

    let mut figures = Vec::new();
    for blow in Blow::ALL {
        if blow == Blow::OutOfMemory
            && let Err(error) = MemoryGroup::of(&format!("bench-{}", std::process::id()))
        {
            not_run.push(NotRun { what: blow.title(), why: error.to_string() });
            continue;
        }
        let outcomes = at_once(&programs, blow, folder.path(), ttl, trials)?;
        let title = format!("next command, TTL {} s, after {}", ttl.as_secs(), blow.title());
        let seconds = |one: &Outcome| one.took.map_or(f64::INFINITY, |took| took.as_secs_f64());
        figures.extend(of_each(&title, Unit::Seconds, &programs, |at| {
            outcomes[at].iter().map(seconds).collect()
        }));
        let both = "  the former command was still at work, in trials";
        figures.extend(of_each(both, Unit::Count, &programs, |at| {
            vec![outcomes[at].iter().filter(|one| one.both_ran).count() as f64]
        }));
    }
    figures.extend(waiting(&programs, folder.path(), ttl, watched)?);
    not_run.iter().for_each(|NotRun { what, why }| eprintln!("left out: {what}: {why}"));
    Ok((figures, not_run))
}

fn of_each(
    what: &str,
    unit: Unit,
    programs: &[ComparedProgram],
    samples: impl Fn(usize) -> Vec<f64>,
) -> Vec<Figure> {
    let figure = |(at, program): (usize, &ComparedProgram)| {
        Figure::new(format!("{what}: {}", program.title), unit, samples(at))
    };
    programs.iter().enumerate().map(figure).collect()
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
        let begin = programs.iter().map(|program| {
            let begin = |number: usize| {
                scope.spawn(move || {
                    let name = format!("{}-{blow:?}-{number}", program.name);
                    let scene = folder.join(name.to_lowercase());
                    trial(program, blow, &scene, ttl)
                })
            };
            (0..trials).map(begin).collect::<Vec<_>>()
        });
        let running: Vec<Vec<_>> = begin.collect();
        let end = |trial: thread::ScopedJoinHandle<'_, Result<Outcome, Failure>>| {
            trial.join().unwrap_or_else(|_| Err("a trial panicked".into()))
        };
        running.into_iter().map(|trials| trials.into_iter().map(end).collect()).collect()
    })
}

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

    fn client_go(program: &Path, server: &Kubernetes) -> Self {
        let how = How::ClientGo { kubeconfig: server.kubeconfig() };
        let title = CLIENT_GO_VERSION.to_owned();
        Self { name: "client-go".into(), title, program: program.to_owned(), how }
    }

    fn vvm(scheme: &str, storage: &str) -> Result<Self, Failure> {
        init_storage(storage)?;
        let program = env::current_exe()?.with_file_name("vvm");
        let how = How::Vvm { storage: storage.to_owned() };
        Ok(Self { name: format!("vvm-{scheme}"), title: format!("vvm ({scheme}:)"), program, how })
    }

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
        let is_host = |pid: &&Pid| command_line(**pid).contains(" stage-host ");
        let all = &candidate.0;
        match self.how {
            How::Vvm { .. } => all.iter().find(is_host).copied(),
            How::Etcdctl { .. } | How::ClientGo { .. } => all.first().copied(),
        }
    }
}

impl Candidate {
    fn process_tree(&self) -> ProcessTree {
        ProcessTree::of(self.process.id().cast_signed())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        kill_at_once(&self.process_tree());
    }
}

fn send(pid: Pid, signal: Signal) {
    let _gone = kill_process(pid, signal);
}

/// Stops all, then kills all, so that none reacts to the end of another.
fn kill_at_once(tree: &ProcessTree) {
    for signal in [Signal::STOP, Signal::KILL] {
        tree.0.iter().for_each(|pid| send(*pid, signal));
    }
}

/// How long a process may take to open its storage and lead.
const STARTS: Duration = Duration::from_secs(30);

const WAITED: Duration = Duration::from_millis(2500);

/// Plus up to so many milliseconds at random, so that trials begin at different points between two looks.
const SPREAD: u64 = 5000;

/// When a trial is given up, in TTLs.
const GIVES_UP: u32 = 3;

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
            Self::TermToOne => holder.0.iter().take(1).for_each(|pid| send(*pid, Signal::TERM)),
            Self::TermToAll => holder.0.iter().for_each(|pid| send(*pid, Signal::TERM)),
            Self::KillOne => holder.0.iter().take(1).for_each(|pid| send(*pid, Signal::KILL)),
            Self::OutOfMemory => {
                let name = scene.file_name().unwrap_or_default().display();
                MemoryGroup::of(&format!("bench-{}-{name}", std::process::id()))?.exhaust(renewing);
            }
            Self::Hang => send(renewing, Signal::STOP),
            Self::KillAll => kill_at_once(holder),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The time until the second one's command ran; `None` if it never did.
    took: Option<Duration>,
    both_ran: bool,
}

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
        return Err(format!("{} does not run its command: {log_end}", compared_program.title).into());
    };
    let second = compared_program.start(scene, ttl, 2)?;
    SystemClock::block_for(WAITED + Duration::from_millis(fastrand::u64(..SPREAD)));
    if works(scene).len() > 1 {
        return Err(
            format!("{}: two commands at once, and nothing has happened", compared_program.title).into()
        );
    }
    let holder = first.process_tree();
    let Some(renewing) = compared_program.renewing(&holder) else {
        return Err(format!("{} has no process that renews", compared_program.title).into());
    };
    let struck = SystemClock::read();
    blow.strike(&holder, renewing, scene)?;
    let next = wait_for_work(scene, 1, ttl * GIVES_UP);
    let both_ran = next.is_some() && !has_ended(work.process);
    // Ends the command that a killed program has left running.
    kill_at_once(&holder);
    drop((first, second));
    Ok(Outcome { took: next.map(|next| struck.until(next.since)), both_ran })
}

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

/// Measures one program after the other, not side by side.
fn waiting(
    programs: &[ComparedProgram],
    folder: &Path,
    ttl: Duration,
    watched: Duration,
) -> Result<Vec<Figure>, Failure> {
    let all: Vec<Vec<Used>> =
        programs.iter().map(|program| used(program, folder, ttl, watched)).collect::<Result<_, _>>()?;
    let mut figures = Vec::new();
    for (what, unit, of) in QUANTITIES {
        figures.extend(of_each(what, unit, programs, |at| all[at].iter().map(of).collect()));
    }
    Ok(figures)
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
    // The holder runs a command and is left out. There is exactly one.
    let work = format!("{} {WORK} {}", env::current_exe()?.display(), scene.display());
    let waits = |tree: &ProcessTree| !tree.0.iter().any(|pid| command_line(*pid).starts_with(&work));
    let trees = candidates.iter().map(Candidate::process_tree).filter(waits);
    let waiting: Vec<i32> = trees.filter_map(|tree| Some(tree.0.first()?.as_raw_pid())).collect();
    if waiting.len() != WAITING {
        let (title, candidates) = (&compared_program.title, WAITING + 1);
        return Err(format!("{title}: of {candidates} candidates {} wait", waiting.len()).into());
    }
    waiting::used(&waiting, || {
        SystemClock::block_for(watched);
        Ok(())
    })
}
