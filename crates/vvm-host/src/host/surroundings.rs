//! What the parts of the host share.

use super::control::Control;
use crate::{
    cli::args::RunArgs,
    containment::Containment,
    link::{
        Link,
        message::{ToGuardian, ToHost},
    },
    situation::Situation,
    worker::environment::Leadership,
};
use clock::{Clock, Instant};
use ielections::Holder;
use rustix::process::Pid;
use std::{
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
};
use tokio::sync::watch;

/// Everything that lasts as long as the process.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) run: RunArgs,
    pub(super) holder: Holder,
    /// What the host tells whoever asks how it stands.
    pub(super) situation: Arc<Situation>,
    /// The worker's standard input.
    pub(super) input: OwnedFd,
    /// The process group for the worker to share with the guardian.
    pub(super) terminal_group: Option<Pid>,
    pub(super) containment: Containment,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) control: Arc<Control>,
    pub(super) guardian: Arc<Link<ToGuardian, ToHost>>,
    /// The kill deadline, as it moves.
    pub(super) deadline: watch::Receiver<Option<Instant>>,
}

/// What became of one campaign, as far as the worker knows.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Set once leading.
    pub(super) leadership: OnceLock<Leadership>,
    /// Set once the last process of the worker is reaped.
    pub(super) supervised: OnceLock<crate::worker::supervise::Supervised>,
}
