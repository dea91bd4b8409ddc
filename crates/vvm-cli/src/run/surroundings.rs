//! What the parts of the host share.

use super::{control::Control, health::Unhealthy};
use crate::{cli::args::RunArgs, worker::environment::Leadership};
use ielections::Holder;
use rustix::process::Pid;
use std::{
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};
use vvm_containment::{Containment, Guardian, OnEvent, Supervised};
use vvm_host::status::HostStatus;

/// Everything that lasts as long as the process.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) run: RunArgs,
    pub(super) holder: Holder,
    /// What the host tells whoever asks how it stands.
    pub(super) situation: Arc<HostStatus>,
    /// The worker's standard input.
    pub(super) input: OwnedFd,
    /// The process group for the worker to share with the guardian.
    pub(super) terminal_group: Option<Pid>,
    pub(super) containment: Containment,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) control: Arc<Control>,
    pub(super) guardian: Guardian,
    /// Readable once the guardian has ended.
    pub(super) guardian_process: Arc<OwnedFd>,
    pub(super) on_event: OnEvent,
    /// The kill deadline, as it moves.
    pub(super) deadline: watch::Receiver<Option<Instant>>,
}

/// What became of one campaign, as far as the worker knows.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Set once leading.
    pub(super) leadership: OnceLock<Leadership>,
    /// Set once nothing of the command runs any more, nor will again.
    pub(super) worked: OnceLock<Worked>,
    /// Set if the command did not pass its checks.
    pub(super) unhealthy: OnceLock<Unhealthy>,
}

/// How the work of a leadership ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Worked {
    /// The worker that ran last.
    pub(super) last: Supervised,
    pub(super) end: WorkEnd,
}

/// What was the end of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkEnd {
    /// The command ended by itself, and that was all of it.
    Finished,
    /// The command was stopped.
    Stopped,
    /// It was to be started again, and was told not to.
    BetweenRuns,
}
