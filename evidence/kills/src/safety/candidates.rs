//! Candidates: each is a `vvm run`, which is started again after each end. Every second one is on a terminal.
//! Its command is the worker ([`work`], or a warm app).

use super::processes::{self, Process};
use fastrand::Rng;
use harness::PseudoTerminal;
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use std::{
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The environment variable that marks the processes of an instance.
pub(crate) const MARK: &str = "SAFETY";

/// The environment variable that tells a worker by which of the programs it was started.
pub(crate) const PROGRAM: &str = "SAFETY_PROGRAM";

pub(crate) struct Setup {
    /// The `vvm` under test, and an older one if there is one. Each instance changes it at each start.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) folder: PathBuf,
    pub(crate) storage: String,
    pub(crate) ttl: Duration,
    /// `restart` or `keep`: the workers are warm apps.
    pub(crate) after_stop: Option<String>,
    pub(crate) worker: Worker,
}

pub(crate) struct Worker {
    pub(crate) line: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

impl Worker {
    pub(crate) fn own(folder: &Path) -> io::Result<Self> {
        let line = vec![env::current_exe()?.into(), "work".into(), folder.into()];
        Ok(Self { line, variables: Vec::new() })
    }
}

pub(crate) struct Instance {
    setup: Rc<Setup>,
    number: usize,
    starts: usize,
    life: Life,
    restart_at: Option<Instant>,
}

/// The instance between a start and an end.
struct Life {
    guardian: Child,
    process: Option<Process>,
    terminal: Option<PseudoTerminal>,
}

/// An instance that has ended, and may have left processes behind.
pub(crate) struct Ended {
    /// `None` if it ended before its start time was read.
    pub(crate) guardian: Option<Process>,
    pub(crate) mark: String,
}

impl Instance {
    pub(crate) fn start(setup: &Rc<Setup>, number: usize) -> io::Result<Self> {
        let life = setup.spawn(number, 0)?;
        Ok(Self { setup: Rc::clone(setup), number, starts: 0, life, restart_at: None })
    }

    /// Detects an end, and starts again up to a second later.
    pub(crate) fn restart_if_due(&mut self, now: Instant, rng: &mut Rng) -> io::Result<Option<Ended>> {
        if let Some(terminal) = &self.life.terminal {
            terminal.discard();
        }
        match self.restart_at {
            Some(at) if now >= at => {
                self.starts += 1;
                self.life = self.setup.spawn(self.number, self.starts)?;
                self.restart_at = None;
            }
            Some(_) => {}
            None if self.life.guardian.try_wait()?.is_some() => {
                self.restart_at = Some(now.after(Duration::from_millis(rng.u64(..1000))));
                let mark = self.setup.mark(self.number, self.starts);
                return Ok(Some(Ended { guardian: self.life.process, mark }));
            }
            None => {}
        }
        Ok(None)
    }

    pub(crate) fn works(&self, worker: Process) -> bool {
        let named = fs::read_to_string(self.setup.folder.join(LOCK));
        named.is_ok_and(|named| named == worker.number.to_string())
    }

    /// The guardian. It is not reaped yet, so that its process id can't be reused.
    pub(crate) fn guardian(&self) -> Option<Process> {
        self.life.process.filter(|_| self.restart_at.is_none())
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.life.terminal.is_some() && self.restart_at.is_none()
    }

    pub(crate) fn close_terminal(&mut self) {
        self.life.terminal = None;
    }

    /// Terminates it and waits; if TERM does not end it, calls `before_kill` and kills it. `None` if it had ended.
    pub(crate) fn end(mut self, before_kill: impl FnOnce(&Self)) -> io::Result<Option<Ended>> {
        if self.restart_at.is_some() {
            return Ok(None);
        }
        if let Some(guardian) = self.guardian() {
            // It may have ended already.
            guardian.signal(Signal::TERM);
        }
        let kill_at = SystemClock::read().after(Duration::from_secs(5));
        let mut before_kill = Some(before_kill);
        while self.life.guardian.try_wait()?.is_none() {
            if let Some(terminal) = &self.life.terminal {
                terminal.discard();
            }
            if SystemClock::read() >= kill_at
                && let Some(before_kill) = before_kill.take()
            {
                before_kill(&self);
                self.life.guardian.kill()?;
            }
            SystemClock::block_for(Duration::from_millis(5));
        }
        let mark = self.setup.mark(self.number, self.starts);
        Ok(Some(Ended { guardian: self.life.process, mark }))
    }
}

impl Setup {
    fn mark(&self, number: usize, starts: usize) -> String {
        format!("{}/{number}.{starts}", self.folder.display())
    }

    fn spawn(&self, number: usize, starts: usize) -> io::Result<Life> {
        let turn = (number + starts) % self.programs.len();
        let program = self.programs.get(turn).ok_or(io::ErrorKind::NotFound)?;
        let mut line = Command::new(program);
        line.args(["run", "--storage", &self.storage, "--name", "safety", "--stop-timeout", "200ms"])
            .args(["--holder", &format!("candidate-{number}"), "--ttl"])
            .arg(format!("{}ms", self.ttl.as_millis()))
            .args(["--containment", "guardian"])
            .args(
                self.after_stop
                    .iter()
                    .flat_map(|after| WARM.iter().copied().chain(["--after-stop", after.as_str()])),
            )
            .arg("--")
            .args(&self.worker.line)
            .envs(self.worker.variables.iter().map(|(name, value)| (name, value)))
            .env(MARK, self.mark(number, starts))
            .env(PROGRAM, turn.to_string());
        let terminal = (number % 2 == 1).then(PseudoTerminal::open);
        let mut command = match &terminal {
            Some(terminal) => on_terminal(terminal, &line),
            None => {
                line.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                line
            }
        };
        let guardian = command.spawn()?;
        let process = Process::of(guardian.id() as i32);
        Ok(Life { guardian, process, terminal })
    }
}

fn on_terminal(terminal: &PseudoTerminal, line: &Command) -> Command {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(line.get_program()).args(line.get_args());
    command.envs(line.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
    command
}

/// So that candidates whose app has died, or has lost a leadership, are back soon.
const WARM: [&str; 7] =
    ["--warm", "--on-loss", "rejoin", "--restart-backoff", "100ms", "--restart-backoff-max", "500ms"];

/// The file below the folder that at most one worker locks.
const LOCK: &str = "lock";

pub(crate) const OVERLAP: &str = "OVERLAP";

/// The last line of the log of a worker that has stopped when it was told to.
pub(crate) const STOPPED: &str = "stopped";

/// Between two lines of the log.
pub(crate) const BEAT: Duration = Duration::from_millis(5);

pub(super) fn work(folder: &Path) -> io::Result<bool> {
    let epoch = env::var("VVM_LEADER_EPOCH").map_err(|_| missing("VVM_LEADER_EPOCH"))?;
    let mut work = Work::begin(folder, &epoch)?;
    loop {
        work.beat()?;
        SystemClock::block_for(BEAT);
    }
}

pub(super) struct Work {
    /// Exclusive. Has the number of the worker that works.
    lock: File,
    log: File,
    background: Child,
}

impl Work {
    pub(super) fn begin(folder: &Path, epoch: &str) -> io::Result<Self> {
        let lock = File::create(folder.join(LOCK))?;
        let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if epoch.ends_with(['0', '2', '4', '6', '8']) {
            signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::new(AtomicBool::new(false)))?;
        }
        let background = Command::new("setsid").args(["sleep", "1000"]).spawn()?;
        let keeper = rustix::process::getppid().map_or(0, |keeper| keeper.as_raw_nonzero().get());
        let host = processes::parent(keeper).unwrap_or_default();
        let (worker, background_id) = (process::id(), background.id());
        write!(&lock, "{worker}")?;
        let name = format!("worker-{worker}-{epoch}");
        let mut log = OpenOptions::new().create_new(true).append(true).open(folder.join(name))?;
        let program = env::var(PROGRAM).map_err(|_| missing(PROGRAM))?;
        let shown = if alone { "alone" } else { OVERLAP };
        writeln!(log, "{worker} {host} {background_id} {program} {epoch} {shown}")?;
        Ok(Self { lock, log, background })
    }

    pub(super) fn beat(&mut self) -> io::Result<()> {
        writeln!(self.log, "{}", SystemClock::read().as_nanos())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.background.kill()?;
        self.background.wait()?;
        self.beat()?;
        writeln!(self.log, "{STOPPED}")?;
        self.lock.set_len(0)
    }
}

fn missing(variable: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{variable} is not set: only `vvm run` starts this"))
}
