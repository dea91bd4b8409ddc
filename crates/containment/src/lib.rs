//! Runs a command so that nothing it starts outlives its supervisor.
//!
//! A program that uses this crate runs as a chain of processes, all of them re-executions of the same binary:
//!
//! - the *guardian*, which the user starts: single-threaded, a sub-reaper, able to be process 1 ([`guard`]);
//! - the *supervisor*, which decides when the command runs ([`Supervisor`], [`supervise()`]), and reaps no
//!   child but its keeper;
//! - the *keeper*, single-threaded, a sub-reaper or process 1 of a PID namespace, which starts, kills and
//!   reaps;
//! - the *command*: first a shim that ties itself to the keeper, then the user's program.
//!
//! If one of the first three dies, the others kill and reap what the command has started. The crate prints
//! nothing: it returns typed errors and reports [`Event`]s. [`stage::enter`] must be the first call in
//! `main`.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "vvm-containment needs Linux: it uses parent-death signals, sub-reapers and process descriptors"
);

mod containment;
mod control_group;
mod event;
mod guard;
mod helpers;
mod keeper;
mod link;
mod messages;
mod namespace;
mod processes;
mod signals;
pub mod stage;
mod supervise;
mod supervisor;
mod sweep;

pub use containment::{Containment, Level, Refusal, Wanted};
pub use control_group::ControlGroupRefusal;
pub use event::{Event, OnEvent};
pub use guard::{Ended as GuardEnded, Report as GuardReport, guard};
pub use helpers::{Helper, HelperError, HelperLines, Helpers};
pub use link::{Readable, Received};
pub use messages::{Note, ToSupervisor};
pub use namespace::{NamespaceRefusal, Step};
pub use processes::{Family, ForeignProcFs, Member, own_group};
pub use signals::{
    Caught, FORWARDED, ForwardedSignal, SignalForCommand, SignalSource, Signals, asks_to_stop, die_of,
    signal_name, terminal_is_gone,
};
pub use stage::{OWN_BINARY, StageError};
#[cfg(feature = "simulation")]
pub use supervise::simulated::{Order, SimulatedKeeper};
pub use supervise::{
    Controls, Killed, StopTimeouts, SuperviseError, Supervised, Supervision,
    keeper_handle::Unproven,
    spawn::{CommandSpec, NotExecuted, SpawnError, Starting, start as spawn},
    supervise,
};
pub use supervisor::{
    AcceptError, GuardedTrigger, Guardian, GuardianWatch, Supervisor, lapsed, listens_again,
};
pub use sweep::{Ended, Reap, Reaped, Sweep, end_all, reap, sweep};
