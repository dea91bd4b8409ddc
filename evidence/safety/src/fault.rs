//! The faults: SIGKILL, SIGTERM, or SIGSTOP and later SIGCONT, to guardian, host, keeper or worker; SIGKILL
//! to guardian and host at once; and closing the terminal.

use crate::{
    instance::{Instance, PROGRAM},
    proc_fs::{self, Process},
};
use fastrand::Rng;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, fcntl_getfl, fcntl_setfl, flock},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::CString,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{self, Command, Stdio},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The faults so far, and the processes that are still stopped.
#[derive(Default)]
pub(crate) struct Faults {
    done: BTreeMap<(Target, Action), u64>,
    /// When a leader's guardian, host, or both were killed.
    pub(crate) leader_kills: Vec<(Instant, Target)>,
    stopped: Vec<(Instant, Pid)>,
    /// Guardians, hosts and keepers that were killed or stopped.
    hit: BTreeSet<Process>,
    /// Guardians and hosts of candidates whose guardian was hit, and host or keeper, too: then no process
    /// may be left that ends the background processes of the worker.
    pub(crate) excused: BTreeSet<Process>,
}

/// The target of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    Guardian,
    Host,
    Keeper,
    Worker,
    GuardianAndHost,
    Terminal,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Action {
    Kill,
    Stop,
    Term,
}

/// The processes of one candidate.
struct CandidateProcesses {
    index: usize,
    guardian: Process,
    host: Option<Process>,
    keeper: Option<Process>,
    worker: Option<i32>,
    has_terminal: bool,
}

impl CandidateProcesses {
    fn of((index, instance): (usize, &Instance)) -> Option<Self> {
        let guardian = instance.guardian()?;
        let first = |parent: Process| proc_fs::children(parent.number).first().copied();
        let host = first(guardian).and_then(Process::of);
        let keeper = host.and_then(first).and_then(Process::of);
        let worker = keeper.and_then(first);
        Some(Self { index, guardian, host, keeper, worker, has_terminal: instance.has_terminal() })
    }

    /// Returns the possible targets.
    fn targets(&self) -> Vec<Target> {
        let there = [
            (Target::Guardian, true),
            (Target::Host, self.host.is_some()),
            (Target::Keeper, self.keeper.is_some()),
            (Target::Worker, self.worker.is_some()),
            (Target::GuardianAndHost, self.host.is_some()),
            (Target::Terminal, self.has_terminal),
        ];
        there.into_iter().filter_map(|(target, is_there)| is_there.then_some(target)).collect()
    }

    /// Returns the processes of a target.
    fn processes(&self, target: Target) -> Vec<i32> {
        let (guardian, host) = (Some(self.guardian.number), self.host.map(|host| host.number));
        let processes = match target {
            Target::Guardian => [guardian, None],
            Target::Host => [host, None],
            Target::Keeper => [self.keeper.map(|keeper| keeper.number), None],
            Target::Worker => [self.worker, None],
            Target::GuardianAndHost => [guardian, host],
            Target::Terminal => [None, None],
        };
        processes.into_iter().flatten().collect()
    }
}

impl Faults {
    /// How many faults killed a process or closed a terminal.
    pub(crate) fn kills(&self) -> u64 {
        self.done.iter().filter(|((_, action), _)| *action == Action::Kill).map(|(_, count)| count).sum()
    }

    /// Injects one fault into one candidate.
    pub(crate) fn inject(&mut self, now: Instant, instances: &mut [Instance], rng: &mut Rng) {
        let mut candidates: Vec<CandidateProcesses> =
            instances.iter().enumerate().filter_map(CandidateProcesses::of).collect();
        // A fault of a standby tests little, so every second fault hits the leader.
        if rng.bool() && candidates.iter().any(|candidate| candidate.worker.is_some()) {
            candidates.retain(|candidate| candidate.worker.is_some());
        }
        let Some(candidate) = rng.choice(candidates) else { return };
        let Some(target) = rng.choice(candidate.targets()) else { return };
        let action = match (target, rng.u32(..5)) {
            (Target::GuardianAndHost | Target::Terminal, _) | (_, 0..3) => Action::Kill,
            (_, 3) => Action::Stop,
            _ => Action::Term,
        };
        if action != Action::Term {
            self.hit(&candidate, target);
        }
        let mut is_done = target == Target::Terminal;
        if let (true, Some(instance)) = (is_done, instances.get_mut(candidate.index)) {
            instance.close_terminal();
        }
        let mut processes = candidate.processes(target);
        rng.shuffle(&mut processes);
        for target in processes.into_iter().filter_map(Pid::from_raw) {
            // It may have ended meanwhile. Its process id is not reused within so short a time.
            is_done |= kill_process(target, action.signal()).is_ok();
            if action == Action::Stop {
                let resume_at = now.after(Duration::from_millis(rng.u64(50..2500)));
                self.stopped.push((resume_at, target));
            }
        }
        *self.done.entry((target, action)).or_default() += u64::from(is_done);
        let is_leader = candidate.worker.is_some();
        if is_done
            && is_leader
            && action == Action::Kill
            && !matches!(target, Target::Worker | Target::Terminal)
        {
            self.leader_kills.push((now, target));
        }
    }

    /// Records that the guardian of a candidate that did not end on TERM will be killed.
    pub(crate) fn kills_guardian_of(&mut self, instance: &Instance) {
        if let Some(candidate) = CandidateProcesses::of((0, instance)) {
            self.hit(&candidate, Target::Guardian);
        }
    }

    fn hit(&mut self, candidate: &CandidateProcesses, target: Target) {
        let CandidateProcesses { guardian, host, keeper, .. } = *candidate;
        let guardian = Some(guardian);
        let hit = match target {
            Target::Guardian => [guardian, None],
            Target::Host => [host, None],
            Target::Keeper => [keeper, None],
            Target::GuardianAndHost => [guardian, host],
            Target::Worker | Target::Terminal => [None, None],
        };
        self.hit.extend(hit.into_iter().flatten());
        let was_hit = |process: Option<Process>| process.is_some_and(|process| self.hit.contains(&process));
        if was_hit(guardian) && (was_hit(host) || was_hit(keeper)) {
            self.excused.extend([guardian, host].into_iter().flatten());
        }
    }

    pub(crate) fn resume_due(&mut self, now: Instant) {
        self.stopped.retain(|(resume_at, stopped)| {
            if *resume_at <= now {
                // Its deadline has probably killed it meanwhile.
                let _ = kill_process(*stopped, Signal::CONT);
            }
            *resume_at > now
        });
    }

    pub(crate) fn resume_all(&mut self) {
        self.resume_due(Instant::NEVER);
    }
}

impl Action {
    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Term => Signal::TERM,
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |((target, action), count): (&(Target, Action), &u64)| match target {
            Target::Terminal => format!("terminal closed {count} times"),
            _ => format!("{target} {action} {count} times"),
        };
        let each = self.done.iter().filter(|(_, count)| **count > 0).map(one).collect::<Vec<_>>();
        let others = self.done.values().sum::<u64>() - self.kills();
        write!(out, "{} kills and {others} other faults: {}", self.kills(), each.join("; "))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
            Self::Host => "host",
            Self::Keeper => "keeper",
            Self::Worker => "worker",
            Self::GuardianAndHost => "guardian and host at once",
            Self::Terminal => "terminal",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kill => "killed",
            Self::Stop => "stopped for a while",
            Self::Term => "terminated",
        })
    }
}

/// The controlling side. Dropping it closes the terminal, which hangs up on its processes.
pub(crate) struct Terminal {
    master: OwnedFd,
    name: CString,
}

impl Terminal {
    pub(crate) fn open() -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        let name = ptsname(&master, Vec::new())?;
        Ok(Self { master, name })
    }

    /// Returns a command that runs `line` on it. The started process becomes the program.
    pub(crate) fn command(&self, line: &Command) -> io::Result<Command> {
        let side = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            Ok::<_, io::Error>(Stdio::from(rustix::fs::open(&*self.name, flags, Mode::empty())?))
        };
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(line.get_program()).args(line.get_args());
        command.envs(line.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(side()?).stdout(side()?).stderr(side()?);
        Ok(command)
    }

    /// Reads the output, so that its writers don't block.
    pub(crate) fn read(&self) {
        let mut screen = [0; 4096];
        // No output, or no writer left.
        while rustix::io::read(&self.master, &mut screen).is_ok_and(|read| read > 0) {}
    }
}

/// Between two lines of the log.
pub(crate) const BEAT: Duration = Duration::from_millis(5);

/// Works until it is killed.
pub(crate) fn work(folder: &Path) -> io::Result<bool> {
    let lock = File::create(folder.join("lock"))?;
    let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let epoch = env::var("VVM_LEADER_EPOCH").map_err(|_| missing("VVM_LEADER_EPOCH"))?;
    if epoch.ends_with(['0', '2', '4', '6', '8']) {
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::new(AtomicBool::new(false)))?;
    }
    let background = Command::new("setsid").args(["sleep", "1000"]).spawn()?.id();
    let keeper = rustix::process::getppid().map_or(0, |keeper| keeper.as_raw_nonzero().get());
    let host = proc_fs::parent(keeper).unwrap_or_default();
    let name = format!("worker-{}-{epoch}", process::id());
    let mut log = OpenOptions::new().create_new(true).append(true).open(folder.join(name))?;
    let program = env::var(PROGRAM).map_err(|_| missing(PROGRAM))?;
    writeln!(log, "{epoch} {host} {} {background} {program}", if alone { "alone" } else { "OVERLAP" })?;
    loop {
        writeln!(log, "{}", SystemClock::read().as_nanos())?;
        SystemClock::block_for(BEAT);
    }
}

fn missing(variable: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{variable} is not set: only `vvm run` starts this"))
}
