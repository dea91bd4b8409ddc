//! [`Helpers`]: the helpers of a command, which its keeper starts, reaps and kills. They have the command's
//! environment and containment.

use super::keeper_process::KeeperProcess;
use crate::{
    auxiliary::{Helper, HelperError, HelperLines},
    event::{Event, OnEvent},
    keeper::message::ToKeeper,
    processes::Ended,
};
use rustix::io::Errno;
use std::{fmt, io, sync::Arc};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

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
    pub(super) fn new(lines: HelperLines, keeper: Arc<dyn KeeperProcess>, on_event: OnEvent) -> Arc<Self> {
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
    pub(super) fn has_ended(&self, helper: Helper, ended: Result<Ended, HelperError>) {
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
