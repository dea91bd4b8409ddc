//! One `vvm run`, which is started again after each end. Every second one is on a terminal.

use crate::{fault::Terminal, proc_fs::Process};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env, io,
    path::PathBuf,
    process::{Child, Command, Stdio},
    rc::Rc,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The environment variable that marks the processes of an instance.
pub(crate) const MARK: &str = "SAFETY";

/// The environment variable that tells a worker by which of the programs it was started.
pub(crate) const PROGRAM: &str = "SAFETY_PROGRAM";

/// DynamoDB Local takes any credentials, and needs some.
pub(crate) const LOCAL_CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];

/// What all instances have in common.
pub(crate) struct Setup {
    /// The `vvm` under test, and an older one if there is one. Each instance changes it at each start.
    pub(crate) programs: Vec<PathBuf>,
    /// The folder of the workers' logs.
    pub(crate) folder: PathBuf,
    /// The URL of the storage.
    pub(crate) storage: String,
    pub(crate) ttl: Duration,
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
    terminal: Option<Terminal>,
}

/// An instance that has ended, and may have left processes behind.
pub(crate) struct Ended {
    /// `None` if it ended before its start time was read.
    pub(crate) guardian: Option<Process>,
    /// The value of [`MARK`].
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
            terminal.read();
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

    /// The guardian. It is not reaped yet, so that its process id can't be reused.
    pub(crate) fn guardian(&self) -> Option<Process> {
        self.life.process.filter(|_| self.restart_at.is_none())
    }

    /// Whether it runs on an open terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.life.terminal.is_some() && self.restart_at.is_none()
    }

    /// Closes the terminal, which hangs up.
    pub(crate) fn close_terminal(&mut self) {
        self.life.terminal = None;
    }

    /// Terminates it and waits. Returns `None` if it had ended before.
    ///
    /// If TERM does not end it, it is killed; `before_kill` is called first.
    pub(crate) fn end(mut self, before_kill: impl FnOnce(&Self)) -> io::Result<Option<Ended>> {
        if self.restart_at.is_some() {
            return Ok(None);
        }
        if let Some(pid) = self.guardian().and_then(|guardian| Pid::from_raw(guardian.number)) {
            // It may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let kill_at = SystemClock::read().after(Duration::from_secs(5));
        let mut before_kill = Some(before_kill);
        while self.life.guardian.try_wait()?.is_none() {
            if let Some(terminal) = &self.life.terminal {
                terminal.read();
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
            .args(["--containment", "guardian", "--"])
            .arg(env::current_exe()?)
            .arg("work")
            .arg(&self.folder)
            .env(MARK, self.mark(number, starts))
            .env(PROGRAM, turn.to_string())
            .envs(LOCAL_CREDENTIALS);
        let terminal = (number % 2 == 1).then(Terminal::open).transpose()?;
        let mut command = match &terminal {
            Some(terminal) => terminal.command(&line)?,
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
