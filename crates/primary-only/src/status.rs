//! The status of services and instances, for operators. And [`Instance`], which has the state of an instance in this
//! process: the service's calls and the instance's run share it.

use crate::{Failure, Outcome, Service, Task, failure::caught_call};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use std::{
    fmt::{self, Display},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::SetOnce;

/// The state of a service in its term.
#[derive(Clone, Debug)]
pub enum ServiceState {
    /// This process does not lead.
    NotLeading,
    /// The documents are being read. The first instances may run already.
    Rebuilding,
    /// All documents were read.
    Running,
    /// The storage refused the documents for good, [`prepare`](crate::Service::prepare) failed, or an earlier instance
    /// does not end. The term runs no instance any more. An outage of the storage causes no such failure.
    RebuildFailed(Failure),
}

impl ServiceState {
    /// The names of all states.
    pub const NAMES: [&str; 4] = ["not-leading", "rebuilding", "running", "rebuild-failed"];

    /// Returns its name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotLeading => "not-leading",
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

/// The status of a service.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// Its name.
    pub service: &'static str,
    /// Its state in this term.
    pub state: ServiceState,
    /// Why it could not be rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The number of instances.
    pub instances: usize,
    /// The number of instances that run.
    pub running: usize,
    /// The number of instances that wait to run, as for the end of a run of the same id.
    pub waiting: usize,
    /// How long the last rebuild took, in this term or an earlier one. `None` before the first.
    #[serde(rename = "rebuilt_in_seconds", serialize_with = "in_seconds")]
    pub rebuilt_in: Option<Duration>,
    /// Documents without an instance.
    pub quarantined: Vec<Quarantined>,
}

/// A document from which no instance can be made. This crate leaves it: repair or delete it for the next term.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Quarantined {
    /// The instance's id as text.
    pub id: String,
    /// Why no instance can be made.
    pub reason: String,
}

/// The status of an instance.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// Its service.
    pub service: &'static str,
    /// Its id as text.
    pub id: String,
    /// Whether it has begun, and whether it has ended.
    pub state: InstanceState,
    /// Its outcome as text, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Whether its document exists, so that later terms run it.
    pub persisted: bool,
    /// The value of [`Task::report`].
    pub report: Value,
}

/// Whether an instance has begun, and whether it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// It has not begun.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

impl InstanceStatus {
    pub(crate) fn from_instance<S: Service>(instance: &Instance<S>) -> Self {
        let report = caught_call(|| instance.task.report());
        let outcome = instance.outcome();
        Self {
            service: S::NAME,
            id: instance.id.to_string(),
            state: instance.state(),
            outcome: outcome.map(ToString::to_string),
            persisted: instance.has_document(),
            report: report.unwrap_or_else(|panic| Value::String(panic.to_string())),
        }
    }
}

fn in_seconds<To: serde::Serializer>(span: &Option<Duration>, to: To) -> Result<To::Ok, To::Error> {
    span.map(|span| span.as_secs_f64()).serialize(to)
}

pub(crate) struct Instance<S: Service> {
    pub(crate) id: S::Id,
    pub(crate) task: S::Task,
    began: AtomicBool,
    persisted: SetOnce<()>,
    deleted: AtomicBool,
    outcome: SetOnce<Outcome>,
    /// Finishes the write whose cell was dropped.
    unfinished: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl<S: Service> Instance<S> {
    pub(crate) fn new(id: S::Id, task: S::Task, persisted: bool) -> Self {
        Self {
            id,
            task,
            began: AtomicBool::new(false),
            persisted: SetOnce::new_with(persisted.then_some(())),
            deleted: AtomicBool::new(false),
            outcome: SetOnce::new(),
            unfinished: Mutex::new(None),
        }
    }

    pub(crate) fn begin(&self) {
        self.began.store(true, Ordering::Release);
    }

    pub(crate) fn state(&self) -> InstanceState {
        match self.outcome() {
            Some(_) => InstanceState::Ended,
            None if self.began.load(Ordering::Acquire) => InstanceState::Running,
            None => InstanceState::Waiting,
        }
    }

    pub(crate) fn persist(&self) {
        // It is set already after the first write.
        let _ = self.persisted.set(());
    }

    pub(crate) fn delete(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    pub(crate) fn has_document(&self) -> bool {
        self.persisted.initialized() && !self.deleted.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        let _ = self.outcome.set(outcome);
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// Waits until the instance has ended. Every path sets an outcome.
    pub(crate) async fn ended(&self) -> Outcome {
        self.outcome.wait().await.clone()
    }

    pub(crate) async fn persisted(&self) -> Result<(), Outcome> {
        tokio::select! {
            biased;
            _ = self.persisted.wait() => Ok(()),
            outcome = self.outcome.wait() => Err(outcome.clone()),
        }
    }

    pub(crate) fn set_unfinished(&self, write: BoxFuture<'static, ()>) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = Some(write);
    }

    pub(crate) fn take_unfinished(&self) -> Option<BoxFuture<'static, ()>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
