//! Primary-only services: long-running work that survives fail-over.
//!
//! A *service* is a kind of task, an *instance* one such task: a state machine whose state is one document,
//! which only the leader can write. Whoever leads reads all documents, makes an instance of each and runs it
//! from where its document says it is; when the leadership ends, they are interrupted and joined, and the
//! next leader goes on. `docs/primary-only.md` says how to model a task, what is guaranteed, and what is not.
//!
//! - [`Service`], [`Task`]: what people write.
//! - [`RegistryBuilder`], [`Registry`]: the services of a process; [`Registry::lead`] runs them under a
//!   leadership.
//! - [`ServiceHandle`], [`Handle`]: what a program asks of them.
//! - [`DocumentedInstance`]: an instance as seen from outside, by `vvm status --instances`.
//! - [`StateCell`]: the only writer of an instance's document. The machinery itself never writes one.
//!
//! ```
//! use primary_only::{BoxError, Interrupted, RegistryBuilder, RegistryConfig, RunContext, Service, Task};
//! # use {vvm_deadman::{Deadman, recording::RecordingTrigger}, ielections::*, std::{num::NonZeroU32, sync::Arc}};
//! # use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};
//!
//! /// Counts to a hundred, once, whoever leads.
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
//!         cx.state.insert().await?; // From here on it survives this process.
//!         while *cx.state.doc() < 100 {
//!             if cx.stop.is_cancelled() {
//!                 return Err(Interrupted.into()); // The next leader goes on from here.
//!             }
//!             let next = cx.state.doc() + 1;
//!             cx.state.update(next).await?; // The step, fenced.
//!         }
//!         println!("a hundred, under epoch {}", cx.standing.epoch());
//!         Ok(cx.state.delete().await?) // Done: nobody takes it up again.
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
//! // A VVM's service does this: see `Registry::lead`.
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
#![forbid(unsafe_code)]

mod asking;
mod collection;
mod documented;
mod envelope;
mod failure;
mod handle;
mod instance;
mod landing;
mod lead;
mod outcome;
mod rebuild;
mod registry;
mod roster;
mod run;
mod runner;
mod service;
mod state_cell;
mod status;
mod term;

pub use asking::{GetOrCreateError, GotOrCreated, Others, ServiceHandle, Unavailable};
pub use collection::NotACollection;
pub use documented::{DocumentedInstance, DocumentedState};
pub use envelope::SchemaVersion;
pub use failure::{BoxError, Failure};
pub use handle::{Handle, NotPersisted};
pub use lead::LeadError;
pub use outcome::Outcome;
pub use registry::{RegisterError, Registry, RegistryBuilder, RegistryConfig};
pub use run::{Interrupted, RunContext};
pub use service::{InstanceId, PrepareContext, Service, Task};
pub use state_cell::{StateCell, StateError};
pub use status::{Course, InstanceStatus, Quarantined, ServiceState, ServiceStatus};
pub use term::Deposed;
