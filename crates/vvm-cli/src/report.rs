//! The result file: the outcome of a `vvm run`, apart from the status of its command.

use crate::{
    notes::Farewell,
    result_file::{self, Unwritable},
};
use ielections::{Epoch, Holder, Incarnation};
use serde::Serialize;
use std::{fmt, path::Path};
use vvm_clock::Instant;
use vvm_containment::{Ended, Level};

/// The outcome of a `vvm run`. The file has these names in `snake_case`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The command ended by itself.
    WorkerEnded,
    /// A stop was requested, and the command has stopped.
    Stopped,
    /// A stop was requested before this process led.
    StoppedWhileWaiting,
    /// Leadership was lost, and the command has stopped.
    Lost,
    /// The command failed its checks, and has been stopped.
    Unhealthy,
    /// Leadership was not acquired in time.
    NotAcquired,
    /// Another process leads (`--try`).
    LeaderSeen,
    /// The storage refused, and trying again does not help.
    StorageRefused,
    /// The storage has another configuration of this name.
    Conflict,
    /// There is no such command.
    CommandNotFound,
    /// The command can't be executed.
    CommandNotExecutable,
    /// The arguments are wrong, or don't fit the storage.
    Misuse,
    /// The operating system refused a resource.
    SystemRefused,
    /// Killed at the deadline.
    Deadline,
    /// The host process died.
    HostDied,
    /// The keeper of the command died: the host releases nothing, the guardian does.
    KeeperDied,
    /// The guardian died. Only logged: readers of the file have seen the guardian's end.
    GuardianDied,
}

impl Outcome {
    /// Returns its name in the file.
    pub(crate) fn word(self) -> String {
        // A unit variant is a string.
        serde_json::to_value(self).ok().and_then(|word| word.as_str().map(Into::into)).unwrap_or_default()
    }
}

/// For people, followed by a reason.
impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::WorkerEnded => "ended",
            Self::Stopped => "stopped",
            Self::StoppedWhileWaiting => "stopped while waiting for leadership",
            Self::Lost => "leadership lost, the command has been stopped",
            Self::Unhealthy => "unhealthy, the command has been stopped",
            Self::NotAcquired | Self::LeaderSeen | Self::StorageRefused | Self::Conflict | Self::Misuse => {
                "not leading"
            }
            Self::CommandNotFound | Self::CommandNotExecutable => "command not started",
            Self::SystemRefused => "failed",
            Self::Deadline => "killed at the deadline",
            Self::HostDied => "the host process died",
            Self::KeeperDied => "the keeper of the command died",
            Self::GuardianDied => "the guardian died, the command has been killed",
        })
    }
}

/// The contents of the file.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub(crate) struct Report {
    outcome: Option<Outcome>,
    /// The exit status of `vvm`; none if it died of a signal.
    exit_status: Option<u8>,
    /// The signal that `vvm` died of.
    signal: Option<i32>,
    pub(crate) reason: Option<String>,
    worker_exit_status: Option<u8>,
    worker_signal: Option<i32>,
    /// The level of containment in force.
    containment: Option<String>,
    name: String,
    holder: String,
    slot: Option<u32>,
    epoch: Option<u64>,
    incarnation: Option<String>,
    /// The kill deadline in force when the host ended without reporting, in nanoseconds since boot.
    kill_deadline_ns: Option<u64>,
    /// When the guardian saw that end, on the same clock.
    host_ended_ns: Option<u64>,
}

impl Report {
    pub(crate) fn new(outcome: Outcome, name: &str, holder: &Holder) -> Self {
        Self { outcome: Some(outcome), name: name.into(), holder: holder.as_str().into(), ..Self::default() }
    }

    pub(crate) fn contained(&mut self, level: Level) {
        self.containment = Some(level.to_string());
    }

    pub(crate) fn ending(&mut self, farewell: Farewell) {
        match farewell {
            Farewell::Exit(status) => self.exit_status = Some(status),
            Farewell::DieOf(signal) => self.signal = Some(signal.as_raw()),
        }
    }

    pub(crate) fn of_worker(&mut self, ended: Ended) {
        match ended {
            Ended::Exited(status) => self.worker_exit_status = Some(status),
            Ended::Signalled(number) => self.worker_signal = Some(number),
        }
    }

    /// Adds the last leadership.
    pub(crate) fn leading(&mut self, slot: u32, epoch: Epoch, incarnation: Incarnation) {
        self.slot = Some(slot);
        self.epoch = Some(epoch.get());
        self.incarnation = Some(incarnation.to_string());
    }

    /// Adds the kill deadline in force, and when the guardian saw the host's end.
    pub(crate) fn with_deadline(&mut self, deadline: Instant, ended: Instant) {
        self.kill_deadline_ns = Some(deadline.as_nanos());
        self.host_ended_ns = Some(ended.as_nanos());
    }

    /// Writes it to the result file.
    ///
    /// # Errors
    /// As [`result_file::write`].
    pub(crate) fn write(&self, path: &Path) -> Result<(), Unwritable> {
        // Numbers and strings: every value can be written as JSON.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        result_file::write(path, &text)
    }
}
