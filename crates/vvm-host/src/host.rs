//! [`Host`]: runs services of a Rust program only while the program leads.
//!
//! Opens the storage, campaigns, leads, campaigns again, and ends with a typed reason and an exit status. Signals stop
//! it and HTTP shows it. Services are tasks of this process and die with it at the kill deadline.

mod campaigns;
mod ended;
mod host;
mod next;
mod opening;
mod preface;
mod primary;
mod refusal;
mod settings;
mod start_line;
mod stop;

pub use ended::Ended;
pub use host::{Host, Signals};
pub use next::{Next, Pause};
pub use refusal::HostError;
pub use settings::{HostSettings, OnLoss};

use vvm_orch::Service;
use vvm_storage::ElectionKey;

/// The services of one leadership, in the order of their start.
pub type Services = Vec<Box<dyn Service<ElectionKey>>>;

/// A service was not started, because it was told to stop first. A [`Service`] that fails with it is not a problem.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("told to stop before it was started")]
pub struct ToldToStop;
