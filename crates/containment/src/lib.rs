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

mod auxiliary;
mod child_handle;
mod control_group;
mod delegation;
mod establish;
mod established;
mod event;
mod guard;
mod keeper;
mod launch;
mod level;
mod link;
mod namespace;
mod namespace_refusal;
mod processes;
mod readable;
mod shim;
mod signals;
pub mod stage;
mod supervise;
mod sweep;
mod terminal;
mod words;

pub use auxiliary::{Helper, HelperError, HelperLines};
pub use delegation::Refusal as ControlGroupRefusal;
pub use establish::Refusal;
pub use established::Containment;
pub use event::{Event, OnEvent};
pub use guard::{Ended as GuardEnded, Note, Report as GuardReport, ToSupervisor, guard};
pub use launch::{OWN_BINARY, StageError};
pub use level::{Level, Wanted};
pub use link::Received;
pub use namespace_refusal::{Refusal as NamespaceRefusal, Step};
pub use processes::{Ended, Family, ForeignProcFs, Member, Reap, Reaped, own_group, reap};
pub use readable::Readable;
pub use signals::{
    Caught, FORWARDED, ForwardedSignal, SignalForCommand, SignalSource, Signals, asks_to_stop, die_of,
    signal_name,
};
#[cfg(feature = "simulation")]
pub use supervise::simulated::{Order, SimulatedKeeper};
pub use supervise::{
    Controls, Killed, StopTimeouts, SuperviseError, Supervised, Supervision,
    alongside::Helpers,
    guardian_lapse::{lapsed, listens_again},
    guardian_watch::GuardianWatch,
    keeper_handle::Unproven,
    not_executed::NotExecuted,
    spawn::{CommandSpec, SpawnError, Starting, start as spawn},
    supervise,
    supervisor::{AcceptError, Guardian, Supervisor},
    trigger::GuardedTrigger,
};
pub use sweep::{Sweep, end_all, sweep};
pub use terminal::terminal_is_gone;
