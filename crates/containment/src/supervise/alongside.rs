//! The helpers of one command, which its keeper starts, reaps and kills.
//!
//! They have the command's environment, and are contained as it is. When one runs is for the caller to
//! decide.

use crate::{
    auxiliary::{Helper, HelperError, HelperLines},
    event::{Event, OnEvent},
    keeper::message::{FromKeeper, ToKeeper},
    link::Link,
    processes::Ended,
};
use rustix::io::Errno;
use std::{fmt, io, sync::Arc};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// The helpers of one command.
pub struct Helpers {
    lines: HelperLines,
    keeper: Arc<Link<ToKeeper, FromKeeper>>,
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
    pub(super) fn new(
        lines: HelperLines,
        keeper: Arc<Link<ToKeeper, FromKeeper>>,
        on_event: OnEvent,
    ) -> Arc<Self> {
        let states = [watch::Sender::new(State::Idle), watch::Sender::new(State::Idle)];
        Arc::new(Self { lines, keeper, on_event, states })
    }

    /// Whether there is a line for it.
    pub fn has(&self, helper: Helper) -> bool {
        self.lines.of(helper).is_some()
    }

    /// Runs one, and waits until it has ended; at `limit` it is killed, with its process group. One that
    /// still runs, since it was killed before and takes its time, is waited for first.
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
        let state = self.state(helper);
        let running = async {
            let mut states = state.subscribe();
            // The sender lives as long as `self`.
            let _ = states.wait_for(|state| *state != State::Running).await;
            let _killed = KilledWhenDropped { helpers: self, helper };
            // Before the order, whose outcome another thread may hear.
            state.send_replace(State::Running);
            if let Err(errno) = self.keeper.say(&ToKeeper::Helper(helper)) {
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

    /// The keeper says that one has ended, or was not started.
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
            && let Err(refusal) = self.helpers.keeper.say(&ToKeeper::KillHelper(self.helper))
            // A keeper that is gone has no helper any more.
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
