//! Runs services of a Rust program only while the program leads.
//!
//! [`Host`] opens a storage, campaigns for a slot, runs its services while it leads, and campaigns again or
//! ends with a typed reason. `vvm run` and `vvm elect` are hosts, too.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use vvm_host::{Host, HostError, HostSettings, service_fn};
//!
//! #[tokio::main]
//! async fn main() -> Result<ExitCode, HostError> {
//!     tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // what the host does, also as a standby
//!     let host = Host::open(HostSettings::new("sqlite:payroll.db", "payroll")).await?;
//!     let ended = host.run(|| {
//!         vec![service_fn("payroll", async |cx| {
//!             println!("this process leads, with epoch {}", cx.standing.epoch());
//!             cx.stop.cancelled().await; // a stop signal, or the leadership is lost
//!             Ok(())
//!         })]
//!     });
//!     let ended = ended.await;
//!     println!("{ended}");
//!     Ok(ended.into())
//! }
//! ```
//!
//! - [`Host`], [`HostSettings`]: the host. [`Ended`], [`Next`]: how a campaign ended, and what follows.
//! - [`status`]: what a host does at the moment, as HTTP shows it.
//! - [`operate`]: what operator commands need: to look into a storage, to wake candidates, to read the
//!   history.
//! - [`once`]: work that is done once per period, as by `vvm once`.
//! - [`exit_status`]: the statuses of a process that ends with its host.
#![forbid(unsafe_code)]

pub mod exit_status;
mod history;
mod host;
mod host_storage;
mod http;
mod left_behind;
mod local_wakeups;
pub mod once;
mod requests;
pub mod status;
mod stop;
mod storage_inspector;

pub use host::{
    Ended, Host, HostError, HostSettings, Next, NotReady, OnLoss, Services, Signals, StopRequested,
};
pub use http::CantListen;
pub use ielections::{Holder, Ttl};
pub use local_wakeups::{LocalDir, UnfitFolder};
pub use vvm_orch::service_fn;

/// For operator commands: reading a host's storage, waking candidates, and the history.
pub mod operate {
    pub use crate::{
        history::{PastLeadership, read},
        host::or_own_name,
        left_behind::{HostEnd, LeftBehind},
        local_wakeups::WakeSender,
        stop::{At, Request, StopRequests},
        storage_inspector::{InspectError, Purpose, ResourceLimit, StorageInspector, way_out},
    };
}

/// The examples of the project's and of this crate's README are doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;
