//! [`CommandStarter`]: starts the command of a leadership, contained.

use crate::{args::RunArgs, contained::NotStarted, leadership::Leadership};
use rustix::process::Pid;
use std::{os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::sync::watch;
use vvm_clock::Instant;
use vvm_containment::{CommandSpec, Containment, OnEvent, Starting, StopTimeouts, spawn};

/// Waiting ends and killing begins this long before the kill deadline. Killing and reaping fifty processes
/// takes 10 ms on an idle machine; the rest is for a busy one, and for the release.
const KILLING: Duration = Duration::from_millis(200);

/// At most this part of a short TTL: a third of the 0.15 TTL in which services must stop after a loss.
const KILLING_SHARE: u32 = 20;

/// `--pre-stop` leaves the command this part of the TTL to stop in: half of the 0.15 TTL after a loss.
const LEAST_TO_STOP_SHARE: u32 = 13;

/// Starts the command, each time in the same way.
#[derive(Debug)]
pub(super) struct CommandStarter {
    pub(super) run: Arc<RunArgs>,
    /// The standard input of the command.
    pub(super) input: OwnedFd,
    /// The process group that the command shares with the guardian.
    pub(super) terminal_group: Option<Pid>,
    pub(super) containment: Containment,
    /// Readable when the guardian has ended.
    pub(super) guardian_process: Arc<OwnedFd>,
    pub(super) on_event: OnEvent,
    /// The kill deadline, which each renewal moves.
    pub(super) deadline: watch::Receiver<Option<Instant>>,
}

impl CommandStarter {
    /// Starts the command.
    ///
    /// # Errors
    /// If the system refuses. No process of the command runs then.
    pub(super) fn start(&self, leadership: &Leadership) -> Result<Starting, NotStarted> {
        let run = &self.run;
        let credentials = vvm_storage::url::credentials(&run.candidate.storage);
        let withheld = if run.keep_credentials { &[] } else { credentials };
        let order = CommandSpec {
            command: &run.command,
            environment: leadership.environment(std::env::vars_os(), withheld),
            helpers: &run.work.helpers(),
            input: &self.input,
            guardian: &self.guardian_process,
            group: self.terminal_group,
            containment: &self.containment,
            deadline: self.deadline.clone(),
            on_event: self.on_event.clone(),
        };
        Ok(spawn(&order)?)
    }

    /// Returns how long the steps of a stop may take.
    pub(super) fn timeouts(&self) -> StopTimeouts {
        let ttl = self.run.candidate.ttl.get();
        StopTimeouts {
            pre_stop_timeout: self.run.work.pre_stop_timeout,
            least_to_stop: ttl / LEAST_TO_STOP_SHARE,
            stop_timeout: self.run.stop_timeout,
            killing: KILLING.min(ttl / KILLING_SHARE),
        }
    }
}
