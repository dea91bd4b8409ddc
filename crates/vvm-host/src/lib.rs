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
//!     let host = Host::open(HostSettings::new("sqlite:/var/lib/payroll/leader.db", "payroll")).await?;
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

pub use host::{Ended, Host, HostError, HostSettings, Next, NotReady, Services, Signals, StopRequested};
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

/// The exit statuses of hosts and operator commands. 64 to 78 are those of sysexits.h; 79 is free there.
/// `docs/operations.md` lists all statuses of `vvm`.
pub mod exit_status {
    use vvm_storage::OpenError;

    /// Wrong arguments.
    pub const MISUSE: u8 = 64;
    /// An operator command: there is no such storage or name.
    pub const UNKNOWN: u8 = 66;
    /// The storage refused for good: address, credentials, schema.
    pub const STORAGE: u8 = 69;
    /// The operating system refused a process or a resource.
    pub const SYSTEM: u8 = 71;
    /// Leadership was not acquired in time.
    pub const NOT_ACQUIRED: u8 = 75;
    /// An operator's request has begun and is not finished (`EX_PROTOCOL` of sysexits.h).
    pub const UNFINISHED: u8 = 76;
    /// The storage holds another configuration of this cluster.
    pub const CONFLICT: u8 = 78;
    /// Leadership was lost, and the worker stopped in time.
    pub const LOST: u8 = 79;

    /// Returns the status of a storage that can't be opened.
    pub fn of_open_error(error: &OpenError) -> u8 {
        match error {
            _ if error.is_misuse() => MISUSE,
            _ if error.is_of_system() => SYSTEM,
            _ => STORAGE,
        }
    }

    /// Returns the status that a shell reports for a process that signal `number` killed.
    pub const fn by_signal(number: i32) -> u8 {
        128_u8.wrapping_add(number as u8)
    }
}

/// The examples of the project's and of this crate's README are doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;
