//! Long-running work that survives fail-over: state machines with one fenced document each.
//!
//! A *service* is a kind of task, and an *instance* is one such task. Its state is one document that only the
//! leader can write. The leader reads all documents, makes an instance of each, and runs it from the state in
//! its document. When the leadership ends, the instances are interrupted and joined, and the next leader
//! continues them. `docs/primary-only.md` explains how to model a task, and which guarantees it has.
//!
//! ```
//! use primary_only::{BoxError, RegistryBuilder, RegistryConfig, RunContext, Service, Task, TermInterrupted};
//! # use {ielections::*, std::{num::NonZeroU32, sync::Arc}};
//! # use vvm_deadman::{Deadman, recording::RecordingTrigger};
//! # use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};
//!
//! /// Counts to a hundred once, under any number of leaders.
//! struct Counters;
//! struct Counter;
//!
//! impl Service for Counters {
//!     type Id = String;
//!     type Doc = u64;
//!     type Task = Counter;
//!     const NAME: &'static str = "counters";
//!
//!     fn build(&self, _id: &String, _count: &u64) -> Result<Counter, BoxError> {
//!         Ok(Counter)
//!     }
//! }
//!
//! #[async_trait::async_trait]
//! impl Task for Counter {
//!     type Doc = u64;
//!
//!     async fn run(&self, mut cx: RunContext<u64>) -> Result<(), BoxError> {
//!         cx.state.insert().await?; // From here on the counter survives this process.
//!         while *cx.state.doc() < 100 {
//!             if cx.stop.is_cancelled() {
//!                 return Err(TermInterrupted.into()); // The next leader continues from here.
//!             }
//!             let next = cx.state.doc() + 1;
//!             cx.state.update(next).await?; // One fenced step.
//!         }
//!         println!("a hundred, under epoch {}", cx.standing.epoch());
//!         Ok(cx.state.delete().await?) // Done: no leader runs it again.
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let trigger = RecordingTrigger::on(Arc::new(vvm_clock::SystemClock::start()?));
//! # let env = Env::with_deadman(Deadman::with_trigger(trigger), tokio::runtime::Handle::current())?;
//! # let storage = ElectionsTtlStorage::new(MemDatabase::new(env.clock.clone()).open());
//! # let elections = Elections::new(Arc::new(storage), env.clone());
//! # let slot = ElectionKey { cluster: "counters".into(), slot: SlotNumber::new(NonZeroU32::MIN) };
//! # let terms = Terms::new(Holder::new("one of us")?, Ttl::DEFAULT);
//! let mut builder = RegistryBuilder::new(RegistryConfig::new(&env));
//! let counters = builder.register(Counters)?;
//! let registry = builder.build();
//! # let (_, leadership) = elections.acquire(Candidacy { slots: vec![slot], terms }).await?;
//! // In a program on `vvm-host`, one service does this: see `Registry::lead`.
//! let ran = leadership.run(async |stop, standing| {
//!     let lead = registry.lead(standing, stop.clone());
//!     let ask = async {
//!         tokio::task::yield_now().await;
//!         let counter = counters.get_or_create("sheep".into(), 0).await?.handle;
//!         assert!(counter.completed().await.is_completed());
//!         assert!(counters.lookup(&"sheep".into()).await?.is_none());
//!         stop.cancel();
//!         Ok::<(), BoxError>(())
//!     };
//!     tokio::join!(lead, ask)
//! });
//! let (led, asked) = ran.await.output;
//! # (led?, asked?);
//! # elections.cleanup().await;
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod document;
mod failure;
mod rebuild;
mod registry;
mod roster;
mod runner;
mod service;
mod service_handle;
mod state_cell;
mod status;
mod term;

pub use document::{InstanceId, NotACollection, SchemaVersion};
pub use failure::{BoxError, Failure};
pub use registry::{RegisterError, Registry, RegistryBuilder};
pub use roster::RegistryConfig;
pub use service::{ExistingTasks, Outcome, PrepareContext, Service, Task};
pub use service_handle::{GetOrCreateError, GotOrCreated, Handle, NotPersisted, ServiceHandle, Unavailable};
pub use state_cell::{RunContext, StateCell, StateError, TermInterrupted};
pub use status::{InstanceState, InstanceStatus, Quarantined, ServiceState, ServiceStatus};
pub use term::{LeadError, LeaderReplaced};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
