//! The helpers of one command: starting them, waiting for them and killing them.
//!
//! They have the command's environment, and are contained as it is. When one runs is for the caller to decide; reaping
//! them, for `supervise`.

use super::starter::Starter;
use crate::{
    auxiliary::{Helper, HelperError, HelperLines},
    processes::Ended,
};
use rustix::process::Pid;
use std::{fmt, sync::Arc};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// The helpers of one command.
pub struct Helpers {
    lines: HelperLines,
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

impl Helpers {
    pub(super) fn new(lines: HelperLines, starter: Starter) -> Arc<Self> {
        let states = [watch::Sender::new(State::Idle), watch::Sender::new(State::Idle)];
        Arc::new(Self { lines, starter, states })
    }

    /// Whether there is a line for it.
    pub fn has(&self, helper: Helper) -> bool {
        self.lines.of(helper).is_some()
    }

    /// Runs one, and waits until it has ended; at `limit` it is killed, with its process group. One that still runs, since
    /// it was killed before and takes its time, is waited for first.
    ///
    /// # Errors
    /// [`HelperError`].
    ///
    /// # Cancel safety
    /// When it is dropped, what it has started is killed.
    pub async fn run(
        &self,
        helper: Helper,
        clock: &Arc<dyn Clock>,
        limit: Instant,
    ) -> Result<Ended, HelperError> {
        let running = async {
            // The sender lives as long as we do.
            let _ =
                self.state(helper).subscribe().wait_for(|state| !matches!(state, State::Running(_))).await;
            let _killed = KilledWhenDropped { helpers: self, helper };
            let process =
                self.starter.start(helper, &self.lines).map_err(|cause| HelperError::System(cause.kind()))?;
            self.state(helper).send_replace(State::Running(process));
            let mut states = self.state(helper).subscribe();
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
            () = clock.sleep_until(limit) => Err(HelperError::TooLong),
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

    /// Its starter says that one has ended.
    pub(super) fn has_ended(&self, helper: Helper, ended: Ended) {
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
        if let State::Running(process) = *self.helpers.state(self.helper).borrow() {
            self.helpers.starter.kill(self.helper, process);
        }
    }
}

impl fmt::Debug for Helpers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Helpers({:?})", self.lines)
    }
}
