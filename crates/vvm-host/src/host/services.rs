use vvm_orch::Service;
use vvm_storage::ElectionKey;

/// The services of one leadership, in the order of their start.
pub type Services = Vec<Box<dyn Service<ElectionKey>>>;

/// The error of a [`Service`] that had to stop before it was started. It does not count as a problem.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stop requested before the start")]
pub struct StopRequested;

/// The error of a [`Service`] that can't start now, as if [`campaign_while`](super::Host::campaign_while) said so. It
/// does not count as a problem: the record is released, and the host campaigns again once the condition holds.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not ready to lead")]
pub struct NotReady;
