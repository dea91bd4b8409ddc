//! Runs services of a Rust program only while the program leads.
//!
//! [`Host`] opens a storage, campaigns for a slot, runs its services while it leads, and campaigns again or ends with a
//! typed reason. `vvm run` and `vvm elect` are hosts, too.
//!
//! # Run it
//! ```no_run
//! use vvm_host::{Host, HostSettings, service_fn};
//!
//! #[tokio::main]
//! async fn main() -> std::process::ExitCode {
//!     tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // what the host does, also as a standby
//!     let services = || {
//!         vec![service_fn("payroll", async |cx| {
//!             println!("this process leads, with epoch {}", cx.standing.epoch());
//!             cx.stop.cancelled().await; // a stop signal, or the leadership is lost
//!             Ok(())
//!         })]
//!     };
//!     match Host::open(HostSettings::new("sqlite:/var/lib/payroll/leader.db", "payroll")).await {
//!         Ok(host) => host.run(services).await.into(),
//!         Err(error) => error.report(),
//!     }
//! }
//! ```
//!
//! # Stop it
//! A stop signal stops it, and so does [`Host::stop`]. [`HostSettings`] lists the settings and their defaults.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), vvm_host::HostError> {
//! use vvm_host::{Host, HostOutcome, HostSettings, service_fn};
//!
//! let host = Host::open(HostSettings::new("mem:", "payroll")).await?;
//! let stop = host.stop();
//! let ended = host.run(|| {
//!     let stop = stop.clone();
//!     vec![service_fn("payroll", async move |cx| {
//!         stop.cancel(); // from anywhere in the program
//!         cx.stop.cancelled().await;
//!         Ok(())
//!     })]
//! });
//! assert!(matches!(ended.await, HostOutcome::Stopped));
//! # Ok(())
//! # }
//! ```
//!
//! # Read why it ended
//! [`HostOutcome`] is a value to match, a text for people, an exit status, and an error with its sources.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), vvm_host::HostError> {
//! use std::error::Error as _;
//! use vvm_host::{Host, HostOutcome, HostSettings, Problem, service_fn};
//!
//! let host = Host::open(HostSettings::new("mem:", "payroll")).await?;
//! let ended = host.run(|| vec![service_fn("payroll", async |_| Err("out of paper".into()))]).await;
//! match &ended {
//!     HostOutcome::Stopped => println!("stopped by a signal, or by Host::stop"),
//!     HostOutcome::Problem(Problem::Lost(loss)) => println!("another process may lead: {loss}"),
//!     HostOutcome::Problem(Problem::Ended { service, failure: Some(failure) }) => {
//!         println!("{service} failed: {failure}");
//!     }
//!     other => println!("{other}"),
//! }
//! assert_eq!(ended.to_string(), "service payroll ended by itself: out of paper");
//! assert_eq!(ended.source().unwrap().to_string(), "out of paper");
//! assert_eq!(ended.exit_status(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Test it in mock time
//! The module `testing` (feature `testing`, for development dependencies) has a clock that moves when nothing can run,
//! storages whose answers the test writes, and an example. The folder `examples/embedded` of the repository has a
//! program with its tests, whose only dependency of the project is this crate.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod exit_status;
mod history;
mod host;
mod host_storage;
mod http;
mod left_behind;
mod local_queue;
mod local_wakeups;
mod metrics;
pub mod once;
#[cfg(feature = "opentelemetry")]
mod open_telemetry;
mod requests;
mod resource_limit;
pub mod status;
mod stop;
mod storage_inspector;
mod successor;
mod timeline;

pub use host::{
    Host, HostError, HostOutcome, HostSettings, Next, NotReady, Services, Signals, StopRequested,
};
pub use http::CantListen;
pub use local_wakeups::{LocalDir, UnfitFolder};
#[cfg(feature = "opentelemetry")]
pub use open_telemetry::Observation;

// What the types above name: a program on a host needs no other crate of the project.
pub use ielections::{
    AcquireError, Env, Epoch, Holder, Loss, Standing, Ttl, documents, record::HolderTooLong,
};
pub use primary_only;
pub use successor::{DeadlineEnforcer, SuccessorRefusal, SuccessorSettings};
pub use tokio_util::sync::CancellationToken;
pub use vvm_clock as clock;
pub use vvm_deadman::{ArmError, Deadman};
pub use vvm_orch::{AcquireTimeout, BoxError, Failure, Problem, Service, ServiceContext, Work, service_fn};
pub use vvm_storage as storage;
pub use vvm_storage::{ElectionKey, OpenError, SettleError};

/// For tests of programs on a host. No time passes: [`in_mock_time`](testing::in_mock_time) moves the clock if nothing
/// can run. A [`MemDatabase`](testing::MemDatabase) remembers what was written. A
/// [`FaultyStorage`](testing::FaultyStorage) before it has outages. The test writes the answers of a
/// [`MockSysVvmStorage`](testing::MockSysVvmStorage).
///
/// ```
/// use std::sync::Arc;
/// use vvm_host::{Host, HostOutcome, HostSettings, Loss, Problem, service_fn, testing::*};
///
/// let mut storage = MockSysVvmStorage::vacant();
/// storage.expect_commit().returning(|_, step| match step {
///     Step::Renew { .. } => Err(WriteError::NotApplied("the disk is full".into())),
///     _ => Ok(StepOutcome::Applied),
/// });
/// let clock = MockClock::new();
/// in_mock_time(&clock, async {
///     let settings = HostSettings::new("not opened", "payroll");
///     let host = Host::on_storage(settings, env(&clock), Arc::new(storage)).unwrap();
///     let ended = host.run(|| vec![service_fn("payroll", async |cx| Ok(cx.stop.cancelled().await))]).await;
///     assert_eq!(ended.exit_status(), 79);
///     let HostOutcome::Problem(Problem::Lost(Loss::StorageUnreachable { .. })) = ended else { panic!("{ended}") };
/// });
/// ```
#[cfg(feature = "testing")]
pub mod testing {
    pub use ielections::{
        ReadError, Slot, Vacant, WriteError,
        testing::{env, in_mock_time},
    };
    pub use testing_time::{MockClock, MockWallClock};
    pub use vvm_storage::{
        Step, StepOutcome, SysVvmStorage,
        mem::MemDatabase,
        testing::{Fault, FaultyStorage, Layer, MockSysVvmStorage, Outage},
    };
}

/// For operator commands: reading a host's storage, waking candidates, the history, pictures of it, and a server for a page.
pub mod operate {
    pub use crate::http::{HttpAnswer, HttpAnswers, HttpServer};
    pub use crate::{
        history::{PastLeadership, read},
        host::or_own_name,
        left_behind::{HostEnd, LeftBehind},
        local_queue::{Admission, LocalQueue},
        local_wakeups::WakeSender,
        resource_limit::{ResourceLimit, way_out},
        stop::{At, StopRequest, StopRequests},
        storage_inspector::{InspectError, Purpose, StorageInspector},
        successor::{ProbeOutcome, named_successor, probe_leader},
        timeline::{Axis, Bar, BarKind, Mark, MarkKind, Timeline},
    };
}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;
