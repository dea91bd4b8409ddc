//! [`Trial`]: one process, from its start to its death.
//!
//! A pidfd shows the time of death, on the clock of the deadline. The observer's own delay counts as lateness
//! of the process.

use crate::{signs, state::State};
use clap::ValueEnum;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid},
};
use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tempfile::NamedTempFile;
use vvm_clock::{Instant, SystemClock};

/// After this time the trial kills a process that is not dead.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// The observed death of a process.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) deadline: Instant,
    pub(crate) died: Instant,
    pub(crate) by: Death,
    /// When one of its threads last ran, if the state leaves signs of life.
    pub(crate) last_sign: Option<Instant>,
}

/// The cause of death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// The deadman's thread.
    Thread,
    /// The deadman's kernel timer.
    Kernel,
    /// Something else.
    Other(ExitStatus),
    /// It did not die, and the trial killed it.
    None,
}

/// The trial has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialError {
    #[error("a process could not be started or watched: {0}")]
    Watch(#[from] io::Error),
    #[error("a process ended without a deadline: {0}")]
    NoDeadline(String),
}

impl From<Errno> for TrialError {
    fn from(cause: Errno) -> Self {
        Self::Watch(cause.into())
    }
}

impl Trial {
    pub(crate) fn run(state: State, deadline_in: Duration) -> Result<Self, TrialError> {
        let signs = state.leaves_signs().then(NamedTempFile::new).transpose()?;
        let signs = signs.as_ref().map(NamedTempFile::path);
        let mut child = start(state, deadline_in, signs)?;
        let outcome = Self::watch(&mut child, state, signs);
        if outcome.is_err() {
            // No process is left behind.
            child.kill()?;
            child.wait()?;
        }
        outcome
    }

    fn watch(child: &mut Child, state: State, signs: Option<&Path>) -> Result<Self, TrialError> {
        let deadline = deadline_of(child)?;
        let process = Pid::from_child(child);
        if state == State::Stopped {
            kill_process(process, Signal::STOP)?;
            waitid(WaitId::Pid(process), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)?;
        }
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        let timeout = SystemClock::read().until(deadline) + GIVE_UP_AFTER;
        let timeout = timeout.try_into().map_err(io::Error::other)?;
        let is_dead = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? == 1;
        let died = SystemClock::read();
        if !is_dead {
            child.kill()?;
        }
        let status = child.wait()?;
        let by = if is_dead { Death::of(status) } else { Death::None };
        let last_sign = signs.map(signs::last).transpose()?.flatten();
        Ok(Self { deadline, died, by, last_sign })
    }

    pub(crate) fn is_early(&self) -> bool {
        self.died < self.deadline
    }

    /// Returns how long after its deadline it was dead.
    pub(crate) fn late(&self) -> Duration {
        self.died.since(self.deadline)
    }

    /// Returns how long after its deadline it last ran.
    pub(crate) fn worked(&self) -> Option<Duration> {
        Some(self.last_sign?.since(self.deadline))
    }
}

fn start(state: State, deadline_in: Duration, signs: Option<&Path>) -> io::Result<Child> {
    let state = state.to_possible_value().ok_or_else(|| io::Error::other("a state without a name"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["subject", state.get_name(), "--deadline-in-ms", &deadline_in.as_millis().to_string()]);
    if let Some(signs) = signs {
        command.arg("--signs").arg(signs);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits until the process is in its state, and returns its deadline.
fn deadline_of(child: &mut Child) -> Result<Instant, TrialError> {
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if let Ok(nanos) = line.trim().parse() {
        return Ok(Instant::from_nanos(nanos));
    }
    let mut words = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut words)?;
    }
    Err(TrialError::NoDeadline(words))
}

impl Death {
    fn of(status: ExitStatus) -> Self {
        if status.code() == Some(vvm_deadman::EXIT_STATUS) {
            Self::Thread
        } else if status.signal() == Some(Signal::KILL.as_raw()) {
            Self::Kernel
        } else {
            Self::Other(status)
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread => write!(out, "by the thread (status {})", vvm_deadman::EXIT_STATUS),
            Self::Kernel => out.write_str("by the kernel (SIGKILL)"),
            Self::Other(status) => write!(out, "by something else ({status})"),
            Self::None => out.write_str("not at all"),
        }
    }
}
