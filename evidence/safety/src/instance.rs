//! One `vvm run`, which is started again after each end. Every second start is on a terminal.

use crate::{proc_fs::Process, terminal::Terminal};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The environment variable that marks the processes of an instance.
pub(crate) const MARK: &str = "SAFETY";

pub(crate) struct Instance {
    vvm: PathBuf,
    folder: PathBuf,
    number: usize,
    ttl: Duration,
    starts: u32,
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
    pub(crate) fn start(vvm: &Path, folder: &Path, number: usize, ttl: Duration) -> io::Result<Self> {
        let life = spawn(vvm, folder, number, ttl, &mark(folder, number, 0))?;
        let (vvm, folder) = (vvm.to_path_buf(), folder.to_path_buf());
        Ok(Self { vvm, folder, number, ttl, starts: 0, life, restart_at: None })
    }

    /// Detects an end, and starts again up to a second later.
    pub(crate) fn restart_if_due(&mut self, now: Instant, rng: &mut Rng) -> io::Result<Option<Ended>> {
        if let Some(terminal) = &self.life.terminal {
            terminal.read();
        }
        match self.restart_at {
            Some(at) if now >= at => {
                self.starts += 1;
                let mark = mark(&self.folder, self.number, self.starts);
                self.life = spawn(&self.vvm, &self.folder, self.number, self.ttl, &mark)?;
                self.restart_at = None;
            }
            Some(_) => {}
            None if self.life.guardian.try_wait()?.is_some() => {
                self.restart_at = Some(now.after(Duration::from_millis(rng.u64(..1000))));
                let mark = mark(&self.folder, self.number, self.starts);
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
        Ok(Some(Ended { guardian: self.life.process, mark: mark(&self.folder, self.number, self.starts) }))
    }
}

fn mark(folder: &Path, number: usize, starts: u32) -> String {
    format!("{}/{number}.{starts}", folder.display())
}

fn spawn(vvm: &Path, folder: &Path, number: usize, ttl: Duration, mark: &str) -> io::Result<Life> {
    let storage = format!("sqlite:{}?allow=overlay", folder.join("storage.db").display());
    let mut line = Command::new(vvm);
    line.args(["run", "--storage", &storage, "--name", "safety", "--stop-timeout", "200ms"])
        .args(["--holder", &format!("candidate-{number}"), "--ttl", &format!("{}ms", ttl.as_millis())])
        .args(["--containment", "guardian", "--"])
        .arg(env::current_exe()?)
        .arg("work")
        .arg(folder)
        .env(MARK, mark);
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
