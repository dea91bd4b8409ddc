//! How services and instances are doing, for people and their dashboards.

use crate::{Failure, Service, failure::caught_call, instance::Instance};
use serde::Serialize;
use serde_json::Value;
use std::{
    fmt::{self, Display},
    time::Duration,
};

/// Where a service is in its term.
#[derive(Clone, Debug)]
pub enum ServiceState {
    /// This process does not lead.
    Paused,
    /// It leads since a moment ago: documents are being read. The first instances run already.
    Rebuilding,
    /// Every document was read.
    Running,
    /// The documents could not be read. Stays until the term ends; nothing of the service runs.
    RebuildFailed(Failure),
}

impl ServiceState {
    /// The names of all of them.
    pub const NAMES: [&str; 4] = ["paused", "rebuilding", "running", "rebuild-failed"];

    /// Its name, as JSON has it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Rebuilding => "rebuilding",
            Self::Running => "running",
            Self::RebuildFailed(_) => "rebuild-failed",
        }
    }
}

impl Display for ServiceState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RebuildFailed(failure) => write!(out, "{}: {failure}", self.name()),
            state => out.write_str(state.name()),
        }
    }
}

impl Serialize for ServiceState {
    fn serialize<To: serde::Serializer>(&self, to: To) -> Result<To::Ok, To::Error> {
        to.serialize_str(self.name())
    }
}

/// How a service is doing.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// Its name.
    pub service: &'static str,
    /// Where it is in its term.
    pub state: ServiceState,
    /// Why it could not be rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How many instances there are.
    pub instances: usize,
    /// How many of them run.
    pub running: usize,
    /// How many wait for their turn.
    pub waiting: usize,
    /// How long it took to rebuild the service, in this term or in the one before.
    #[serde(rename = "rebuilt_in_seconds", serialize_with = "in_seconds")]
    pub rebuilt_in: Option<Duration>,
    /// Documents that make no instance.
    pub quarantined: Vec<Quarantined>,
}

/// A document that makes no instance. It is left as it stands: mend it or delete it, and it is read in the
/// next term.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Quarantined {
    /// The instance's id, as text.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// How an instance is doing.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// Its service.
    pub service: &'static str,
    /// Its id, as text.
    pub id: String,
    /// How far its run is.
    pub course: Course,
    /// How it ended, for people, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Whether its document stands, so that it survives this process.
    pub persisted: bool,
    /// What [`Task::report`](crate::Task::report) says.
    pub report: Value,
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Course {
    /// It waits for its turn.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

impl InstanceStatus {
    pub(crate) fn of<S: Service>(instance: &Instance<S>) -> Self {
        use crate::Task;
        let report = caught_call(|| instance.task.report());
        Self {
            service: S::NAME,
            id: instance.id.to_string(),
            course: Course::of(instance),
            outcome: instance.outcome().map(ToString::to_string),
            persisted: instance.stands(),
            report: report.unwrap_or_else(|panic| Value::String(panic.to_string())),
        }
    }
}

impl Course {
    pub(crate) fn of<S: Service>(instance: &Instance<S>) -> Self {
        match (instance.outcome(), instance.has_begun()) {
            (Some(_), _) => Self::Ended,
            (None, true) => Self::Running,
            (None, false) => Self::Waiting,
        }
    }
}

fn in_seconds<To: serde::Serializer>(span: &Option<Duration>, to: To) -> Result<To::Ok, To::Error> {
    span.map(|span| span.as_secs_f64()).serialize(to)
}
