//! Runs services only while this process leads: provide, launch, shut down.
//!
//! A VVM is a process that wants to lead and then run services. A [`Vvm`] campaigns for a slot, and starts
//! its [`Service`]s in order once it leads. When the leadership is lost, it begins at once to stop them, in reverse
//! order. It releases the slot only after they have stopped (I6). [`RunningVvm`] is the host's handle to it.
//!
//! ```
//! # use ielections::{Elections, Env, Holder, Ttl};
//! # use vvm_orch::{AcquireTimeout, Vvm, VvmConfig, service_fn};
//! # use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};
//! # use std::{error::Error, num::NonZeroU32, sync::Arc};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn Error>> {
//! let env = Env::this_process()?;
//! let storage = vvm_storage::open("mem:", env.clock.clone()).await?;
//! let elections = Elections::new(Arc::new(ElectionsTtlStorage::new(storage)), env.clone());
//! let slot = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::MIN) };
//!
//! let payroll = service_fn("payroll", async |cx| {
//!     println!("this process leads, with epoch {}", cx.standing.epoch());
//!     cx.stop.cancelled().await;
//!     Ok(())
//! });
//! let config = VvmConfig::new(vec![slot], Holder::new("one of us")?, &env);
//! let vvm = Vvm::provide(config, elections, vec![payroll]).launch(Ttl::DEFAULT, AcquireTimeout::Forever);
//! vvm.leading().await?;
//! // … until `vvm.problem()` resolves, or the host stops:
//! vvm.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The clock, the spawner and the elections are arguments, so that a simulation can replace them. Elections
//! are in the crate `ielections`. The crate `vvm-host` adds storages, settings and HTTP.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod launcher;
mod service;
mod shutdowner;
mod state;
mod vvm;

pub use ielections::AcquireTimeout;
pub use service::{BoxError, Service, ServiceContext, Work, service_fn};
pub use state::{Failure, NotLeading, Problem, VvmLeadership};
pub use vvm::{RunningVvm, Vvm, VvmConfig};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
