//! Runs services only while this process leads: provide, launch, shut down.
//!
//! [`Vvm`] campaigns for a slot, starts its [`Service`]s in order once it leads, stops them the moment it
//! does not, and hands the slot back only after they have stopped (I6). [`RunningVvm`] is what the host holds
//! meanwhile.
//!
//! ```
//! # use ielections::{Elections, Env, Holder, Ttl};
//! # use vvm_orch::{Acquisition, Vvm, VvmConfig, service_fn};
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
//! let vvm = Vvm::provide(config, elections, vec![payroll]).launch(Ttl::DEFAULT, Acquisition::Forever);
//! vvm.leading().await?;
//! // Until there is a problem, or the host has reasons of its own:
//! vvm.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Vvm`], [`VvmConfig`], [`Acquisition`]: what is provided, and how long it campaigns.
//! - [`RunningVvm`], [`Leading`], [`NotLeading`]: what the host waits for.
//! - [`Service`], [`service_fn`], [`ServiceContext`], [`Work`]: what runs while leading.
//! - [`Problem`], [`Failure`]: the first thing that went wrong (I8).
//!
//! Time, spawning and elections come in from outside, so that a simulation can own them all. Elections are in
//! the crate `ielections`; a command in a process of its own is the crate `vvm-host`'s.
#![forbid(unsafe_code)]

mod acquisition;
mod config;
mod hosted;
mod launcher;
mod leading;
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
pub use leading::Leading;
pub use problem::{Failure, NotLeading, Problem};
pub use running::RunningVvm;
pub use service::{BoxError, Service, ServiceContext, Work, service_fn};
pub use vvm::Vvm;
