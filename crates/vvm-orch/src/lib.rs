//! Run services only while leading: provide, launch, shut down.
//!
//! What lives here: [`Vvm`], which campaigns for a slot, starts its [`Service`]s in order once it leads, tells them to
//! stop the moment it doesn't, and hands the slot back only after they have stopped (I6). Each part in a file of its
//! own: `vvm` (what is provided), `running` (what the host holds), `launcher`, `monitor` and `shutdowner` (its three
//! tasks), `hosted` (one service and its task), `stopping` (of all of them,
//! in time), `state` (what everything shares).
//!
//! What does not: elections (crate `ielections`), and running a command in a process of its own (crate `vvm-host`).
//!
//! No runtime: time, spawning and elections come in from outside, so that a simulation can own them all.
#![forbid(unsafe_code)]

mod acquisition;
mod config;
mod hosted;
mod launcher;
mod monitor;
mod problem;
mod running;
mod service;
mod shutdowner;
mod state;
mod stopping;
mod task;
mod vvm;

pub use acquisition::Acquisition;
pub use config::VvmConfig;
pub use problem::{Failure, NotLeading, Problem};
pub use running::{Leading, RunningVvm};
pub use service::{BoxError, Service, ServiceContext, Work, service_fn};
pub use vvm::Vvm;
