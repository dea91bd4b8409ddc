//! [`Helper`]: lines for a shell that run beside the command, in the same containment and with its environment.
//! The command's keeper starts, reaps and kills them ([`Helpers`]).

use crate::supervise::keeper_handle::KeeperProcess;
use crate::{
    event::{Event, OnEvent},
    messages::ToKeeper,
    stage::{self, SHIM_STAGE},
    sweep::Ended,
};
use rustix::io::Errno;
use std::{
    env, fmt, io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Command, Stdio},
    sync::Arc,
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// A helper of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// Runs before the command is stopped.
    PreStop,
    /// Checks whether the command works.
    Check,
}

/// The lines, for `sh -c`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct HelperLines {
    /// The line of [`Helper::PreStop`].
    pub pre_stop: Option<String>,
    /// The line of [`Helper::Check`].
    pub check: Option<String>,
}

/// Why a helper did not end by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelperError {
    /// It was killed.
    #[error("took longer than it may")]
    TooLong,
    /// The system refused the process.
    #[error("could not be started: {0}")]
    System(io::ErrorKind),
}

/// The variables by which a keeper gets the lines, and a shell its own: every user can read arguments of
/// processes, but not their environment.
const PRE_STOP: &str = "VVM_KEEPER_PRE_STOP";
const CHECK: &str = "VVM_KEEPER_CHECK";
const LINE: &str = "VVM_KEEPER_LINE";

impl HelperLines {
    /// Returns the line of `helper`.
    pub(crate) fn of(&self, helper: Helper) -> Option<&str> {
        match helper {
            Helper::PreStop => self.pre_stop.as_deref(),
            Helper::Check => self.check.as_deref(),
        }
    }

    /// Returns the lines as variables of a keeper.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(PRE_STOP, &self.pre_stop), (CHECK, &self.check)]
            .into_iter()
            .filter_map(|(name, line)| Some((name, line.as_deref()?)))
    }

    /// Returns the lines in the environment of this process, a keeper.
    pub(crate) fn of_environment() -> Self {
        Self { pre_stop: env::var(PRE_STOP).ok(), check: env::var(CHECK).ok() }
    }
}

/// Removes the keeper's variables from the environment of `command`.
pub(crate) fn without_lines(mut command: Command) -> Command {
    command.env_remove(PRE_STOP).env_remove(CHECK);
    command
}

/// Returns the shim that becomes a shell for `line`, in a process group of its own. Its standard output goes
/// to standard error, because standard output is the command's.
///
/// # Errors
/// If the process is out of descriptors.
pub(crate) fn helper_command(line: &str, far: OwnedFd) -> io::Result<Command> {
    let script = format!("line=${LINE}; unset {LINE}; eval \"$line\"");
    let shell = ["sh".into(), "-c".into(), script.into()];
    let mut command = without_lines(stage::command(SHIM_STAGE, stage::behind_dashes(&shell), far));
    command.env(LINE, line);
    command.process_group(0).stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned()?));
    Ok(command)
}

/// The helpers of one command.
pub struct Helpers {
    lines: HelperLines,
    keeper: Arc<dyn KeeperProcess>,
    on_event: OnEvent,
    states: [watch::Sender<State>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Running,
    Ended(Result<Ended, HelperError>),
}

impl Helpers {
    pub(crate) fn new(lines: HelperLines, keeper: Arc<dyn KeeperProcess>, on_event: OnEvent) -> Arc<Self> {
        let states = [watch::Sender::new(State::Idle), watch::Sender::new(State::Idle)];
        Arc::new(Self { lines, keeper, on_event, states })
    }

    /// Returns whether the caller has set a line for `helper`.
    pub fn has(&self, helper: Helper) -> bool {
        self.lines.of(helper).is_some()
    }

    /// Runs a helper, and waits until it has ended. At `limit` it is killed, with its process group. Waits
    /// first for an earlier run that was killed and has not ended yet.
    ///
    /// # Errors
    /// [`HelperError`].
    ///
    /// # Cancel safety
    /// Dropped, it kills the helper.
    pub async fn run(
        &self,
        helper: Helper,
        clock: &Arc<dyn Clock>,
        limit: Instant,
    ) -> Result<Ended, HelperError> {
        let state = self.state(helper);
        let running = async {
            let mut states = state.subscribe();
            // The sender lives as long as `self`.
            let _ = states.wait_for(|state| *state != State::Running).await;
            let _killed = KilledWhenDropped { helpers: self, helper };
            // Before the message, because another thread may receive the answer.
            state.send_replace(State::Running);
            if let Err(errno) = self.keeper.send(&ToKeeper::Helper(helper)) {
                let refusal = HelperError::System(io::Error::from(errno).kind());
                state.send_replace(State::Ended(Err(refusal)));
            }
            loop {
                if let State::Ended(ended) = *states.borrow_and_update() {
                    return ended;
                }
                let _ = states.changed().await;
            }
        };
        tokio::select! {
            biased;
            ended = running => ended,
            () = clock.sleep_until(limit) => Err(HelperError::TooLong),
        }
    }

    /// Records the keeper's message that a helper has ended or was not started.
    pub(crate) fn has_ended(&self, helper: Helper, ended: Result<Ended, HelperError>) {
        self.state(helper).send_replace(State::Ended(ended));
    }

    fn state(&self, helper: Helper) -> &watch::Sender<State> {
        match helper {
            Helper::PreStop => &self.states[0],
            Helper::Check => &self.states[1],
        }
    }
}

struct KilledWhenDropped<'a> {
    helpers: &'a Helpers,
    helper: Helper,
}

impl Drop for KilledWhenDropped<'_> {
    fn drop(&mut self) {
        if *self.helpers.state(self.helper).borrow() == State::Running
            && let Err(refusal) = self.helpers.keeper.send(&ToKeeper::KillHelper(self.helper))
            // A keeper that has ended has no helper any more.
            && refusal != Errno::PIPE
        {
            self.helpers.on_event.report(Event::HelperNotKilled(refusal.into()));
        }
    }
}

impl fmt::Debug for Helpers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Helpers({:?})", self.lines)
    }
}
