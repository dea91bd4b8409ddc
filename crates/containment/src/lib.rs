//! Runs a command so that nothing it starts outlives its supervisor.
//!
//! A program that uses this crate runs as a chain of processes, all of them re-executions of the same binary:
//!
//! - the *guardian*, which the user starts: single-threaded, a sub-reaper, able to be process 1 ([`guard()`]);
//! - the *supervisor*, which decides when the command runs ([`Supervisor`], [`supervise()`]), and reaps no child but
//!   its keeper;
//! - the *keeper*, single-threaded, a sub-reaper or process 1 of a PID namespace, which starts, kills and reaps;
//! - the *command*: first a shim that ties itself to the keeper, then the user's program.
//!
//! If one of the first three dies, the others kill and reap what the command has started. The crate prints nothing: it
//! returns typed errors and reports [`SupervisionEvent`]s. [`stage::enter`] must be the first call in `main`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "vvm-containment needs Linux: it uses parent-death signals, sub-reapers and process descriptors"
);

mod containment;
mod control_group;
mod event;
mod guard;
mod keeper;
mod launch;
mod link;
mod messages;
mod namespace;
mod processes;
mod refusal;
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "for `cargo xtask check`"))]
mod rules;
mod signal_table;
mod signals;
mod supervise;
mod supervisor;
mod sweep;

pub use containment::{Containment, Level, RequestedLevel};
pub use control_group::ControlGroupRefusal;
pub use event::{OnEvent, SupervisionEvent};
pub use guard::{LevelRefusal, Report as GuardReport, SupervisorEnd as GuardEnded, guard};
pub use launch::{HelperError, HelperLines, NoteLink, OWN_BINARY, StageError};
pub use link::{LinkMessage, ReadableLink};
#[cfg(feature = "simulation")]
pub use messages::decodes;
pub use messages::{DeathNotice, Helper, ToSupervisor};
pub use processes::{Family, ForeignProcFs, Member, ProcessEnd, Reap, Reaped, ends_by, own_group, reap};
pub use refusal::{NamespaceRefusal, NotExecuted, SetupStep};
#[cfg(feature = "simulation")]
pub use rules::{GuardianRules, KeeperAction, KeeperEvent, KeeperRules, is_proven};
pub use signal_table::{SignalMeaning, asks_to_stop, meaning, signal_name, signal_named, signal_of};
pub use signals::{
    ForwardedSignal, ReceivedSignal, SignalForCommand, SignalSource, Signals, can_die_of, die_of, is_ignored,
    terminal_is_gone,
};
#[cfg(feature = "simulation")]
pub use supervise::simulated::{KeeperOrder, SimulatedKeeper};
pub use supervise::{
    Controls, KillReason, StopTimeouts, SuperviseError, Supervised, Supervision,
    keeper_handle::{Helpers, UnprovenKeeperEnd},
    spawn::{CommandSpec, SpawnError, Starting, start as spawn},
    supervise,
};
pub use supervisor::{
    AcceptError, GuardedTrigger, Guardian, GuardianWatch, Supervisor, lapsed, listens_again,
};
pub use sweep::end_all;

/// The stages of this crate: re-executions of the same program as shim, keeper and so on.
pub mod stage {
    use crate::{keeper, launch, namespace};
    use std::{ffi::OsString, process::ExitCode};

    /// Runs the stage that the first argument names, and returns its exit status. Returns `None` at once in any other
    /// process. Must be the first call in `main`, while the process has a single thread. Fails if a stage can't begin.
    /// [`StageError::Abandoned`](crate::StageError::Abandoned) needs no message.
    pub fn enter() -> Result<Option<ExitCode>, launch::StageError> {
        let mut arguments = std::env::args_os().skip(1);
        let Some(stage) = arguments.next() else { return Ok(None) };
        let arguments = || arguments.collect::<Vec<OsString>>();
        let status = match stage.to_str() {
            Some(launch::SHIM_STAGE) => launch::shim_main(&arguments())?.into(),
            Some(keeper::STAGE) => keeper::main(&arguments())?.into(),
            Some(namespace::OUTSIDE_STAGE) => namespace::outside_main(&arguments())?,
            Some(namespace::INIT_STAGE) => namespace::init_main(&arguments())?.into(),
            _ => return Ok(None),
        };
        Ok(Some(status))
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
