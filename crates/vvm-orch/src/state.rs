//! [`VvmState`]: what tasks and handles of a VVM share. Callers see [`Problem`], [`NotLeading`], [`VvmLeadership`].

use ielections::{AcquireError, Loss, Standing};
use std::{
    error::Error,
    sync::{Arc, OnceLock},
};
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;

/// Each cell is set once, and each token is cancelled once.
#[derive(Debug)]
pub(crate) struct VvmState<K> {
    /// The first problem (I8).
    problem: SetOnce<Problem>,
    /// The first one that says that work may still run (I6).
    work_left: OnceLock<Problem>,
    leading: SetOnce<VvmLeadership<K>>,
    stop: CancellationToken,
    done: CancellationToken,
}

impl<K: Clone> VvmState<K> {
    pub(crate) fn new() -> Self {
        Self {
            problem: SetOnce::new(),
            work_left: OnceLock::new(),
            leading: SetOnce::new(),
            stop: CancellationToken::new(),
            done: CancellationToken::new(),
        }
    }

    /// Reports a problem, which shuts the VVM down. It is logged last: a subscriber may block or panic.
    pub(crate) fn report(&self, problem: Problem) {
        if problem.leaves_work() {
            let _ = self.work_left.set(problem.clone());
        }
        let is_first = self.problem.set(problem.clone());
        self.stop.cancel();
        match is_first {
            // The services have done their work.
            Ok(()) if matches!(problem, Problem::Ended { failure: None, .. }) => {
                tracing::info!(%problem, "the VVM shuts down");
            }
            Ok(()) => tracing::error!(%problem, "the VVM shuts down"),
            Err(_) => tracing::warn!(%problem, "another problem while the VVM shuts down"),
        }
    }

    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.get()
    }

    pub(crate) fn work_left(&self) -> Option<&Problem> {
        self.work_left.get()
    }

    pub(crate) async fn problem_or_done(&self) -> Option<&Problem> {
        tokio::select! {
            biased;
            _ = self.problem.wait() => {}
            () = self.done.cancelled() => {}
        }
        self.problem()
    }

    pub(crate) fn services_are_ready(&self, leading: VvmLeadership<K>) {
        // The launcher calls this once.
        drop(self.leading.set(leading));
    }

    pub(crate) async fn leading(&self) -> Result<VvmLeadership<K>, NotLeading> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            _ = self.leading.wait() => {}
        }
        match self.leading.get() {
            Some(leading) if !self.is_stopping() => Ok(leading.clone()),
            _ => Err(self.problem().cloned().map_or(NotLeading::ShutDown, NotLeading::Problem)),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(crate) async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) fn has_stopped(&self) {
        self.done.cancel();
    }

    pub(crate) async fn stopped(&self) {
        self.done.cancelled().await;
    }
}

/// The error of a service, shared by all copies of a problem.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// Why a VVM shut itself down, or could not shut down cleanly.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Problem {
    /// No slot was acquired.
    #[error("leadership was not acquired: {0}")]
    NotAcquired(#[source] Arc<AcquireError>),
    /// The leadership was lost, or must be released. After [`Loss::EngineEnded`] the kill deadline may end the process.
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
    /// A service panicked. Work that it had started may still run, so the leadership is not released (I4, I6).
    #[error(
        "service {service} panicked: {panic}; the record is left to expire and the kill deadline stays armed"
    )]
    Panicked {
        /// The service's name.
        service: Arc<str>,
        /// The panic's message.
        panic: Arc<str>,
    },
    /// A service did not stop in time. The leadership is not released (I6), and the kill deadline ends the process.
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
    /// The VVM's task ended early: its runtime was shut down, or an argument's code panicked.
    #[error("the VVM's task ended early{}", cause(panic))]
    Broken {
        /// The panic's message, if it panicked.
        panic: Option<Arc<str>>,
    },
}

impl Problem {
    /// Whether work of the services may still run, so that the leadership is not released (I6).
    pub fn leaves_work(&self) -> bool {
        match self {
            Self::Panicked { .. } | Self::WontStop { .. } | Self::Dropped { .. } | Self::Broken { .. } => {
                true
            }
            Self::NotAcquired(_)
            | Self::Lost(_)
            | Self::StartFailed { .. }
            | Self::Ended { .. }
            | Self::StopFailed { .. } => false,
        }
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

/// The leadership of a VVM whose services are ready.
#[derive(Clone, Debug)]
pub struct VvmLeadership<K> {
    /// The slot.
    pub slot: K,
    /// The epoch, the time left and the loss.
    pub standing: Standing,
}
