//! Lines for the shell that run beside the command: a check, and what is to happen before it is told to stop.
//!
//! What lives here: [`AideLines`], and [`Aides`], which starts them, waits for them and kills them. They have the
//! command's environment, and are contained as it is: what they start is found, waited for and killed with what the
//! command has started. What does not: when one runs (`supervise`, `host::health`), and reaping.

mod starter;

use crate::processes::Ended;
use clap::Args;
use rustix::process::Pid;
use std::{ffi::OsString, fmt, io, sync::Arc};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

pub(crate) use starter::{ByHost, ByInit, Starter, command};

/// What there is beside the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aide {
    /// Runs before the command is told to stop.
    PreStop,
    /// Finds out whether the command works.
    Check,
}

/// The lines, for `sh -c`.
#[derive(Clone, Default, Debug, Args)]
pub(crate) struct AideLines {
    #[arg(long)]
    pub(crate) pre_stop: Option<String>,
    #[arg(long)]
    pub(crate) check: Option<String>,
}

impl AideLines {
    /// The line of one.
    pub(crate) fn of(&self, aide: Aide) -> Option<&str> {
        match aide {
            Aide::PreStop => self.pre_stop.as_deref(),
            Aide::Check => self.check.as_deref(),
        }
    }

    /// For the stages that come to start them.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> + use<> {
        let argument = |option: &str, line: &Option<String>| {
            line.as_ref().map(|line| OsString::from(format!("--{option}={line}")))
        };
        argument("pre-stop", &self.pre_stop).into_iter().chain(argument("check", &self.check))
    }
}

/// What an aide came to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AideError {
    /// It was killed.
    #[error("took longer than it may")]
    TooLong,
    /// The system refused the process.
    #[error("could not be started: {0}")]
    System(io::ErrorKind),
}

/// The aides of one worker.
pub(crate) struct Aides {
    lines: AideLines,
    starter: Starter,
    states: [watch::Sender<State>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// As this process, if it is a child of ours.
    Running(Option<Pid>),
    Ended(Ended),
}

impl Aides {
    pub(super) fn new(lines: AideLines, starter: Starter) -> Arc<Self> {
        let states = [watch::Sender::new(State::Idle), watch::Sender::new(State::Idle)];
        Arc::new(Self { lines, starter, states })
    }

    /// Whether there is a line for it.
    pub(crate) fn has(&self, aide: Aide) -> bool {
        self.lines.of(aide).is_some()
    }

    /// Runs one, and waits until it has ended; at `limit` it is killed, with its process group. One that still runs, since
    /// it was killed before and takes its time, is waited for first.
    ///
    /// # Errors
    /// [`AideError`].
    ///
    /// # Cancel safety
    /// When it is dropped, what it has started is killed.
    pub(crate) async fn run(
        &self,
        aide: Aide,
        clock: &Arc<dyn Clock>,
        limit: Instant,
    ) -> Result<Ended, AideError> {
        let running = async {
            // The sender lives as long as we do.
            let _ = self.state(aide).subscribe().wait_for(|state| !matches!(state, State::Running(_))).await;
            let _killed = KilledWhenDropped { aides: self, aide };
            let process =
                self.starter.start(aide, &self.lines).map_err(|cause| AideError::System(cause.kind()))?;
            self.state(aide).send_replace(State::Running(process));
            let mut states = self.state(aide).subscribe();
            loop {
                if let State::Ended(ended) = *states.borrow_and_update() {
                    return Ok(ended);
                }
                let _ = states.changed().await;
            }
        };
        tokio::select! {
            biased;
            ended = running => ended,
            () = clock.sleep_until(limit) => Err(AideError::TooLong),
        }
    }

    /// A child was reaped: one of these, perhaps.
    pub(super) fn note(&self, process: Pid, ended: Ended) {
        for state in &self.states {
            state.send_if_modified(|state| {
                let is_this = *state == State::Running(Some(process));
                if is_this {
                    *state = State::Ended(ended);
                }
                is_this
            });
        }
    }

    /// Whoever started it says that one has ended.
    pub(super) fn has_ended(&self, aide: Aide, ended: Ended) {
        self.state(aide).send_replace(State::Ended(ended));
    }

    fn state(&self, aide: Aide) -> &watch::Sender<State> {
        match aide {
            Aide::PreStop => &self.states[0],
            Aide::Check => &self.states[1],
        }
    }
}

struct KilledWhenDropped<'a> {
    aides: &'a Aides,
    aide: Aide,
}

impl Drop for KilledWhenDropped<'_> {
    fn drop(&mut self) {
        if let State::Running(process) = *self.aides.state(self.aide).borrow() {
            self.aides.starter.kill(self.aide, process);
        }
    }
}

impl fmt::Debug for Aides {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Aides({:?})", self.lines)
    }
}
