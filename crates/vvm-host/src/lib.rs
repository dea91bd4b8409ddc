//! Run a command only while leading: what the `vvm` binary is made of.
//!
//! `vvm run` is a chain of three processes, all of them this binary:
//!
//! - the *guardian*, which the user starts: single-threaded for its whole life, a sub-reaper, able to be process 1;
//! - the *host*: elections, the deadman, and every decision about the worker;
//! - the *worker*: first a shim that ties itself to the host, then the user's command.
//!
//! Whichever of the three dies, the others see to it that nothing the worker started lives on (`docs/architecture.md`).
//!
//! - `cli`: arguments, durations, exit statuses, and settings from the environment and a file.
//! - `guardian`, `run`, `worker`: the three. What contains the worker stands in `vvm_containment`.
//! - `contained`, `notes`: how its refusals are worded, and what the host tells the guardian.
//! - `signals`, `stop_requests`, `announce`: signals in, what they ask for, lines out.
//! - `situation`: the status of a host. `host_storage`: the layer between its campaigns and the storage.
//! - `http`: that over HTTP.
//! - `identity`: who we are. `report`: the result file. `shortage`: what the system refused, and the way out.
//! - `service_manager`: what systemd is told.
//! - [`Host`]: runs services while it leads, with the one campaign loop. `run`: its service is the contained command.
//! - `calendar`: moments and spans as people read them.
//! - `history`: who led when, and `vvm history`.
//! - `operate`: `vvm pause`, `resume`, `step-down`. `requests`: heeding them. `inspection`: opening a storage that is only looked at.
//! - `neighbours`: those on the same machine tell each other to look at the storage at once.
//! - `terminal_view`: pictures on a terminal. `watch`: `vvm watch`. `status`: `vvm status`.
//! - `doctor`: `vvm doctor`. `init_storage`: `vvm init-storage`.
//! - `demo`: `vvm demo`.
//! - `elect`: `vvm elect`, hooks and no command. `prospect`: `--dry-run`.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "vvm needs Linux: parent-death signals, sub-reapers and process descriptors are its containment"
);

mod announce;
mod async_runtime;
mod calendar;
mod cli;
mod contained;
mod demo;
mod doctor;
mod elect;
mod guardian;
mod history;
mod host;
mod host_storage;
mod http;
mod identity;
mod init_storage;
mod inspection;
mod neighbours;
mod notes;
mod operate;
mod prospect;
mod report;
mod requests;
mod run;
mod service_manager;
mod shortage;
mod signals;
mod situation;
mod status;
mod stop_requests;
mod terminal_view;
mod watch;
mod worker;

/// The paths by which `demo` and `watch` know what stands in `vvm_containment`.
mod processes {
    pub(crate) use vvm_containment::{Ended, Family, ForeignProcFs, Reap, reap};
}
mod readable {
    pub(crate) use vvm_containment::Readable;
}

pub use host::{Ended, Host, HostError, HostSettings, Next, OnLoss, Pause, Services, Signals, ToldToStop};
pub use http::CantListen;
pub use ielections::{Holder, Ttl};
pub use neighbours::{LocalDir, UnfitFolder};
pub use situation::Situation;

use std::process::ExitCode;

/// What the `vvm` binary does: reads the command line of this process, does what it says, and returns its exit status.
///
/// Must be called from the main thread of a process that has no other thread yet: the guardian stays single-threaded
/// for its whole life, and parent-death signals are bound to the thread that spawns.
pub fn main() -> ExitCode {
    cli::main()
}

/// The README's example is compiled with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
