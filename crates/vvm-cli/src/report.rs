//! The result file: how a `vvm run` ended, told apart from how its worker ended.

use crate::{
    notes::Farewell,
    result_file::{self, Unwritable},
};
use ielections::{Epoch, Holder, Incarnation};
use serde::Serialize;
use std::{fmt, path::Path};
use vvm_clock::Instant;
use vvm_containment::{Ended, Level};

/// What became of it. The names in the file are these in `snake_case`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The worker ended by itself.
    WorkerEnded,
    /// We were told to stop, and the worker has stopped.
    Stopped,
    /// We were told to stop before we led.
    StoppedWhileWaiting,
    /// Leadership was lost, and the worker has stopped.
    Lost,
    /// The worker did not pass its checks: it was stopped, and the leadership given up.
    Unhealthy,
    /// Leadership was not acquired in time.
    NotAcquired,
    /// Somebody else leads, and that was to be the end of it (`--try`).
    LeaderSeen,
    /// The storage refused for good.
    StorageRefused,
    /// The storage holds another configuration.
    Conflict,
    /// There is no such command.
    CommandNotFound,
    /// The command can't be executed.
    CommandNotExecutable,
    /// The arguments are wrong, or don't fit the storage.
    Misuse,
    /// The operating system refused something that we need.
    SystemRefused,
    /// Killed at the deadline.
    Deadline,
    /// The host ended in a way that it should not.
    HostDied,
    /// The keeper of the command ended in a way that it should not: the record is left to expire.
    KeeperDied,
    /// The guardian ended in a way that it should not. Logged only: whoever would read it in the file has
    /// done so by then.
    GuardianDied,
}

impl Outcome {
    /// As it is called in the file.
    pub(crate) fn word(self) -> String {
        // A unit variant is a text, to serde as well.
        serde_json::to_value(self).ok().and_then(|word| word.as_str().map(Into::into)).unwrap_or_default()
    }
}

/// For people.
impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::WorkerEnded => "the command has ended",
            Self::Stopped => "stopped",
            Self::StoppedWhileWaiting => "stopped while waiting for leadership",
            Self::Lost => "leadership lost, the command has been stopped",
            Self::Unhealthy => "unhealthy, the command has been stopped",
            Self::NotAcquired => "not acquired in time",
            Self::LeaderSeen => "somebody else leads",
            Self::StorageRefused => "the storage refuses",
            Self::Conflict => "configuration conflict",
            Self::CommandNotFound => "command not found",
            Self::CommandNotExecutable => "the command can't be executed",
            Self::Misuse => "wrong arguments",
            Self::SystemRefused => "the system refuses",
            Self::Deadline => "killed at the deadline",
            Self::HostDied => "the host died",
            Self::KeeperDied => "the keeper of the command died, the record is left to expire",
            Self::GuardianDied => "the guardian died, the command has been killed",
        })
    }
}

/// What the file says.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Report {
    outcome: Outcome,
    /// The exit status of `vvm`; none when it died of a signal.
    exit_status: Option<u8>,
    /// The signal that `vvm` died of.
    signal: Option<i32>,
    reason: Option<String>,
    worker_exit_status: Option<u8>,
    worker_signal: Option<i32>,
    /// What held the worker's processes: the level in force.
    containment: Option<String>,
    name: String,
    holder: String,
    slot: Option<u32>,
    epoch: Option<u64>,
    incarnation: Option<String>,
    /// The kill deadline that was in force when the host ended without a word, in nanoseconds since boot.
    kill_deadline_ns: Option<u64>,
    /// When the guardian had seen its end, on the same clock.
    host_ended_ns: Option<u64>,
}

impl Report {
    /// A report of `outcome` for those who lead `name`.
    pub(crate) fn new(outcome: Outcome, name: &str, holder: &Holder) -> Self {
        Self {
            outcome,
            exit_status: None,
            signal: None,
            reason: None,
            worker_exit_status: None,
            worker_signal: None,
            containment: None,
            name: name.into(),
            holder: holder.as_str().into(),
            slot: None,
            epoch: None,
            incarnation: None,
            kill_deadline_ns: None,
            host_ended_ns: None,
        }
    }

    /// Why.
    pub(crate) fn because(self, reason: impl fmt::Display) -> Self {
        Self { reason: Some(reason.to_string()), ..self }
    }

    /// What held the worker's processes.
    pub(crate) fn contained(self, level: Level) -> Self {
        Self { containment: Some(level.to_string()), ..self }
    }

    /// How `vvm` is going to end.
    pub(crate) fn ending(self, farewell: Farewell) -> Self {
        match farewell {
            Farewell::Exit(status) => Self { exit_status: Some(status), ..self },
            Farewell::DieOf(signal) => Self { signal: Some(signal.as_raw()), ..self },
        }
    }

    /// How the worker ended.
    pub(crate) fn of_worker(self, ended: Ended) -> Self {
        match ended {
            Ended::Exited(status) => Self { worker_exit_status: Some(status), ..self },
            Ended::Signalled(number) => Self { worker_signal: Some(number), ..self },
        }
    }

    /// The leadership held last.
    pub(crate) fn leading(self, slot: u32, epoch: Epoch, incarnation: Incarnation) -> Self {
        let incarnation = Some(incarnation.to_string());
        Self { slot: Some(slot), epoch: Some(epoch.get()), incarnation, ..self }
    }

    /// The kill deadline that was in force, and when the guardian had seen the host's end.
    pub(crate) fn with_deadline(self, deadline: Instant, ended: Instant) -> Self {
        Self { kill_deadline_ns: Some(deadline.as_nanos()), host_ended_ns: Some(ended.as_nanos()), ..self }
    }

    /// Writes it to the result file.
    ///
    /// # Errors
    /// As [`result_file::write`].
    pub(crate) fn write(&self, path: &Path) -> Result<(), Unwritable> {
        // Numbers and texts alone: it has no value that can't be written as JSON.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        result_file::write(path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;

    #[test]
    fn the_file_says_what_happened_and_replaces_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        std::fs::write(&path, "of an earlier run").unwrap();
        let holder = Holder::new("here:1").unwrap();
        let report = Report::new(Outcome::Stopped, "payroll", &holder)
            .leading(2, Epoch::new(7).unwrap(), Incarnation::from_bytes([1; 16]))
            .of_worker(Ended::Signalled(15))
            .contained(Level::PidNamespace)
            .with_deadline(Instant::from_nanos(1_000), Instant::from_nanos(1_400))
            .ending(Farewell::DieOf(Signal::TERM));
        report.write(&path).unwrap();
        let found = serde_json::from_slice::<serde_json::Value>(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(found["outcome"], "stopped");
        assert_eq!(found["signal"], 15);
        assert_eq!(found["exit_status"], serde_json::Value::Null);
        assert_eq!(found["worker_signal"], 15);
        assert_eq!(found["containment"], "pidns");
        assert_eq!((&found["slot"], &found["epoch"]), (&2.into(), &7.into()));
        assert_eq!((&found["kill_deadline_ns"], &found["host_ended_ns"]), (&1_000.into(), &1_400.into()));
        assert_eq!(found["incarnation"], "01".repeat(16));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
