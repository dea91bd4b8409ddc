//! [`Host`]: what `vvm run` does around a command, for services of a Rust program's own.
//!
//! What lives here: opening the storage, campaigning, leading, campaigning again, and an end that is told to whoever
//! started the program, by its exit status. Signals stop it, HTTP shows it.
//!
//! What does not: containment. Services are tasks of this process, and die with it at the kill deadline; a command with
//! processes of its own wants `vvm run`.

mod campaigns;
mod ended;
mod host;
mod primary;
mod refusal;
mod settings;
mod stop;

pub use ended::Ended;
pub use host::Host;
pub use refusal::HostError;
pub use settings::{HostSettings, OnLoss};

use vvm_orch::Service;
use vvm_storage::ElectionKey;

/// The services of one leadership, in the order of their start.
pub type Services = Vec<Box<dyn Service<ElectionKey>>>;
