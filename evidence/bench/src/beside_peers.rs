//! `vvm run` beside `etcdctl lock` and client-go's leader election, in one run on one machine: the time until
//! the next command works, and the cost of waiting.
//!
//! Each stands beside `vvm` on its own server, and `vvm` on SQLite beside both.

mod comparison;
mod succession;

use crate::process::{self, ResourcesError};
use comparison::{Column, Comparison, Sample};
use harness::MemoryGroup;
use rustix::process::{Pid, Signal, kill_process};
use servers::{
    client_go,
    etcd::Etcd,
    kubernetes::Kubernetes,
    owned::{self, Owned},
};
use std::{
    env,
    error::Error,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
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
            && let Err(error) = MemoryGroup::of(&format!("bench-{}", std::process::id()))
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
    comparisons.extend(succession::measure(&programs, folder.path(), ttl, watched)?);
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
    file.write_all(format!("{since} {}\n", std::process::id()).as_bytes())?;
    vvm_clock::SystemClock::block_for(LONGEST);
    Ok(())
}

/// `vvm`, which was built into the folder of this program.
fn vvm() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("vvm"))
}

/// A program that runs a command while it holds a lease.
pub(crate) struct ComparedProgram {
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
pub(crate) struct Candidate {
    pub(crate) process: Owned,
}

impl ComparedProgram {
    pub(crate) fn etcdctl(etcd: &Etcd) -> Self {
        let how = How::Etcdctl { endpoint: etcd.endpoint() };
        let title = format!("etcdctl ({})", etcd.version());
        Self { name: "etcdctl".into(), title, program: "etcdctl".into(), how }
    }

    /// A candidate of client-go as `evidence/servers/client-go` has it.
    pub(crate) fn client_go(program: &Path, server: &Kubernetes) -> Self {
        let how = How::ClientGo { kubeconfig: server.kubeconfig() };
        let title = client_go::VERSION.to_owned();
        Self { name: "client-go".into(), title, program: program.to_owned(), how }
    }

    /// `vvm run` on a storage, which is made ready.
    ///
    /// # Errors
    /// It can't be.
    pub(crate) fn vvm(scheme: &str, storage: &str) -> Result<Self, Failure> {
        let program = vvm()?;
        let made = Command::new(&program)
            .args(["init-storage", "--storage", storage])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        let how = How::Vvm { storage: storage.to_owned() };
        Ok(Self { name: format!("vvm-{scheme}"), title: format!("vvm ({scheme}:)"), program, how })
    }

    /// Its name and storage, for the table.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.how, How::Vvm { .. })
    }

    /// Starts a candidate that runs the command of `scene` when it leads.
    pub(crate) fn start(&self, scene: &Path, ttl: Duration, number: usize) -> io::Result<Candidate> {
        let name = scene.file_name().unwrap_or_default();
        let mut command = owned::command(&self.program)?;
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
    pub(crate) fn renewing(&self, candidate: &ProcessTree) -> Option<Pid> {
        if self.is_ours() { candidate.with_argument("stage-host") } else { candidate.first() }
    }
}

impl Candidate {
    /// The candidate and all its descendants.
    pub(crate) fn process_tree(&self) -> ProcessTree {
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
    pub(crate) fn first(&self) -> Option<Pid> {
        self.0.first().copied()
    }

    /// The first one with this argument.
    pub(crate) fn with_argument(&self, argument: &str) -> Option<Pid> {
        self.0.iter().copied().find(|pid| words(*pid).iter().any(|word| word == argument.as_bytes()))
    }

    /// Sends a signal to the ancestor alone.
    pub(crate) fn signal_first(&self, signal: Signal) {
        if let Some(first) = self.0.first() {
            send(*first, signal);
        }
    }

    /// Sends a signal to each of them.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.0.iter().for_each(|pid| send(*pid, signal));
    }

    /// Stops all, then kills all, so that none reacts to the end of another.
    pub(crate) fn kill_at_once(&self) {
        self.signal_all(Signal::STOP);
        self.signal_all(Signal::KILL);
    }

    /// Whether one of them is the command of this scene.
    pub(crate) fn runs(&self, scene: &Path) -> bool {
        let scene = scene.as_os_str().as_encoded_bytes();
        let is_work = |pid: &Pid| {
            let words = words(*pid);
            words.len() > 2 && words[1] == WORK.as_bytes() && words[2] == scene
        };
        self.0.iter().any(is_work)
    }

    /// Their proportional memory (PSS), in bytes: shared pages are divided among their users.
    pub(crate) fn proportional_bytes(&self) -> Result<u64, ResourcesError> {
        self.0.iter().map(|pid| process::proportional_bytes_of(pid.as_raw_pid())).sum()
    }

    /// The sum of their resident memory, in bytes: shared pages count more than once.
    pub(crate) fn resident_bytes(&self) -> Result<u64, ResourcesError> {
        self.0.iter().map(|pid| process::resident_bytes_of(&pid.to_string())).sum()
    }

    /// CPU time of all threads that run now.
    pub(crate) fn cpu_time(&self) -> Result<Duration, ResourcesError> {
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
