//! [`Problem`]: why a VVM ended (I8). A host derives its exit status from it.

use crate::task::EndedEarly;
use ielections::{AcquireError, Loss};
use std::{error::Error, sync::Arc, time::Duration};

/// The error of a service, shared by all copies of a problem.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// Why a VVM shut itself down, or could not shut down cleanly.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Problem {
    /// No slot was acquired.
    #[error("leadership was not acquired: {0}")]
    NotAcquired(#[source] Arc<AcquireError>),
    /// The leadership was lost, or must be released. With [`Loss::EngineEnded`] the kill deadline may still
    /// be armed, and then ends the process.
    #[error("leadership was lost: {0}")]
    Lost(#[source] Loss),
    /// A service did not become ready.
    #[error("service {service} failed to start: {cause}")]
    StartFailed {
        /// The service's name.
        service: Arc<str>,
        /// Its error.
        #[source]
        cause: Failure,
    },
    /// A service did not become ready in time ([`VvmConfig::start_timeout`](crate::VvmConfig)).
    #[error("service {service} was not ready after {}", vvm_clock::Span(*after))]
    StartTimedOut {
        /// The service's name.
        service: Arc<str>,
        /// The limit.
        after: Duration,
    },
    /// A service ended although it was not stopped.
    #[error("service {service} ended by itself{}", cause(failure))]
    Ended {
        /// The service's name.
        service: Arc<str>,
        /// Its error, if it failed.
        #[source]
        failure: Option<Failure>,
    },
    /// A service was stopped, and failed while it stopped.
    #[error("service {service} failed while stopping: {cause}")]
    StopFailed {
        /// The service's name.
        service: Arc<str>,
        /// Its error.
        #[source]
        cause: Failure,
    },
    /// A service panicked. Work that it had started may still run, so the leadership is not released (I4).
    #[error(
        "service {service} panicked: {panic}; the record is left to expire and the kill deadline stays armed"
    )]
    Panicked {
        /// The service's name.
        service: Arc<str>,
        /// The panic's message.
        panic: Arc<str>,
    },
    /// A service did not stop in time. The leadership is not released (I6), and the kill deadline ends the
    /// process.
    #[error("service {service} did not stop; the record is left to expire and the kill deadline stays armed")]
    WontStop {
        /// The service's name.
        service: Arc<str>,
    },
    /// The runtime was shut down, and dropped a service half-way. As after a panic, its work may still run.
    #[error(
        "service {service} was dropped by its runtime; \
         the record is left to expire and the kill deadline stays armed"
    )]
    Dropped {
        /// The service's name.
        service: Arc<str>,
    },
    /// A task of the VVM ended early: its runtime was shut down, or an argument's code panicked.
    #[error("the VVM's task {task} ended early{}", cause(panic))]
    Broken {
        /// The task.
        task: &'static str,
        /// The panic's message, if it panicked.
        panic: Option<Arc<str>>,
    },
}

impl Problem {
    pub(crate) fn broken(task: &'static str, early: EndedEarly) -> Self {
        let panic = match early {
            EndedEarly::Panicked(panic) => Some(panic),
            EndedEarly::Dropped => None,
        };
        Self::Broken { task, panic }
    }
}

fn cause(cause: &Option<impl std::fmt::Display>) -> String {
    cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// The VVM does not lead, and never will.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotLeading {
    /// It had a problem.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// It was shut down.
    #[error("the VVM was shut down")]
    ShutDown,
}
