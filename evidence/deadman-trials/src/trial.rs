//! One process, from its start to its death.
//!
//! The moment of death is seen through a pidfd, on the clock that the deadline is on. The observer is a
//! process like any other: what it takes to be woken and to read the clock counts as the dead one's lateness.

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

/// How long after its deadline a process is given up and ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was seen of one process that had a deadline.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) deadline: Instant,
    pub(crate) died: Instant,
    pub(crate) by: Death,
    /// When a thread of it last ran, of a process that leaves signs of that.
    pub(crate) last_sign: Option<Instant>,
}

/// Of what it died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// The deadman's thread.
    Thread,
    /// The deadman's timer in the kernel.
    Kernel,
    /// Something else.
    Other(ExitStatus),
    /// It did not die, but was killed in the end.
    None,
}

/// Nothing was learnt of a process.
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
        let mut patient = start(state, deadline_in, signs)?;
        let outcome = Self::watch(&mut patient, state, signs);
        if outcome.is_err() {
            // Whatever it is doing: none is left behind.
            patient.kill()?;
            patient.wait()?;
        }
        outcome
    }

    fn watch(patient: &mut Child, state: State, signs: Option<&Path>) -> Result<Self, TrialError> {
        let deadline = deadline_of(patient)?;
        let process = Pid::from_child(patient);
        if state == State::Stopped {
            kill_process(process, Signal::STOP)?;
            waitid(WaitId::Pid(process), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)?;
        }
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        let patience = SystemClock::read().until(deadline) + PATIENCE;
        let patience = patience.try_into().map_err(io::Error::other)?;
        let is_dead = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience))? == 1;
        let died = SystemClock::read();
        if !is_dead {
            patient.kill()?;
        }
        let status = patient.wait()?;
        let by = if is_dead { Death::of(status) } else { Death::None };
        let last_sign = signs.map(signs::last).transpose()?.flatten();
        Ok(Self { deadline, died, by, last_sign })
    }

    pub(crate) fn is_early(&self) -> bool {
        self.died < self.deadline
    }

    /// How long after its deadline it was dead.
    pub(crate) fn late(&self) -> Duration {
        self.died.since(self.deadline)
    }

    /// How long after its deadline it last ran.
    pub(crate) fn worked(&self) -> Option<Duration> {
        Some(self.last_sign?.since(self.deadline))
    }
}

fn start(state: State, deadline_in: Duration, signs: Option<&Path>) -> io::Result<Child> {
    let state = state.to_possible_value().ok_or_else(|| io::Error::other("a state without a name"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["patient", state.get_name(), "--deadline-in-ms", &deadline_in.as_millis().to_string()]);
    if let Some(signs) = signs {
        command.arg("--signs").arg(signs);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits until the process has got into its state.
fn deadline_of(patient: &mut Child) -> Result<Instant, TrialError> {
    let mut line = String::new();
    if let Some(stdout) = &mut patient.stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if let Ok(nanos) = line.trim().parse() {
        return Ok(Instant::from_nanos(nanos));
    }
    let mut words = String::new();
    if let Some(stderr) = &mut patient.stderr {
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
