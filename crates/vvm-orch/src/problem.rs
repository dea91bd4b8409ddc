//! What ends a VVM: one problem, the first (I8), typed, so that a host can choose its exit status by it.

use crate::task::EndedEarly;
use ielections::{AcquireError, Loss};
use std::{error::Error, sync::Arc, time::Duration};

/// Why a service failed, in its own words; shared, because a problem is read by whoever asks.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// Why a VVM shut itself down, or could not shut down cleanly.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Problem {
    /// No slot was acquired.
    #[error("leadership was not acquired: {0}")]
    NotAcquired(#[source] Arc<AcquireError>),
    /// The leadership is over, or must be handed back. With [`Loss::EngineEnded`] nobody could disarm when it
    /// was: the process ends at the kill deadline.
    #[error("leadership was lost: {0}")]
    Lost(#[source] Loss),
    /// A service did not become ready.
    #[error("service {service} failed to start: {cause}")]
    StartFailed {
        /// Which.
        service: Arc<str>,
        /// What it said.
        #[source]
        cause: Failure,
    },
    /// A service did not become ready in time ([`VvmConfig::start_timeout`](crate::VvmConfig)).
    #[error("service {service} was not ready after {}", vvm_clock::Span(*after))]
    StartTimedOut {
        /// Which.
        service: Arc<str>,
        /// How long it had.
        after: Duration,
    },
    /// A service ended although nobody told it to.
    #[error("service {service} ended by itself{}", failure.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    Ended {
        /// Which.
        service: Arc<str>,
        /// What it said, if it failed.
        #[source]
        failure: Option<Failure>,
    },
    /// A service stopped as it was told to, and failed on the way.
    #[error("service {service} failed while stopping: {cause}")]
    StopFailed {
        /// Which.
        service: Arc<str>,
        /// What it said.
        #[source]
        cause: Failure,
    },
    /// A service panicked. That proves nothing about what it had started, so the leadership is not handed
    /// back (I4).
    #[error(
        "service {service} panicked: {panic}; the record is left to expire and the kill deadline stays armed"
    )]
    Panicked {
        /// Which.
        service: Arc<str>,
        /// The panic's message.
        panic: Arc<str>,
    },
    /// A service did not stop in time. The leadership is not handed back (I6): the kill deadline ends the
    /// process.
    #[error("service {service} did not stop; the record is left to expire and the kill deadline stays armed")]
    WontStop {
        /// Which.
        service: Arc<str>,
    },
    /// A service's runtime dropped it half-way: the runtime was shut down. That proves as little as a panic
    /// does.
    #[error(
        "service {service} was dropped by its runtime; the record is left to expire and the kill deadline stays armed"
    )]
    Dropped {
        /// Which.
        service: Arc<str>,
    },
    /// A task of the VVM itself ended early: its runtime was shut down, or something that was injected
    /// panicked.
    #[error("the VVM's task {task} ended early{}", panic.as_ref().map(|panic| format!(": {panic}")).unwrap_or_default())]
    Broken {
        /// Which.
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

/// A VVM does not lead, and never will.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotLeading {
    /// Because of this.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// Because it was told to shut down.
    #[error("the VVM was shut down")]
    ShutDown,
}
