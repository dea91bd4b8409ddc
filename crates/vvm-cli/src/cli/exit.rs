//! The exit statuses of `vvm`, apart from a worker's own.
//!
//! 64 to 78 are those of sysexits.h; 79 to 81 are free there; 126, 127 and 128 + n are the shell's.

pub(crate) use vvm_host::exit_status::*;

/// The worker did not pass its checks, and was stopped.
pub(crate) const UNHEALTHY: u8 = 81;
/// Killed at the deadline, by the kernel or on the deadline's behalf.
pub(crate) const KILLED: u8 = by_signal(9);
/// The command can't be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// Killed at the deadline, by the thread that says so.
pub(crate) const DEADMAN: u8 = vvm_deadman::EXIT_STATUS as u8;
const _: () = assert!(vvm_deadman::EXIT_STATUS == 80);

pub(crate) use vvm_containment::die_of;

/// `vvm status --exit-status`: a slot is free, or the name is paused.
pub(crate) const STATUS_FREE: u8 = 1;
/// `vvm status --exit-status`: a record has stood unchanged for its TTL.
pub(crate) const STATUS_STALE: u8 = 2;
/// `vvm status --exit-status`: a record is of unknown age.
pub(crate) const STATUS_UNKNOWN: u8 = 3;

/// For `--help`.
pub(crate) const HELP: &str = "\
Exit status:
  the worker's own, or 128 + n if signal n ended it; if it was told to stop by
  TERM, INT or a lost terminal (HUP) and died of it, vvm dies of the same signal
  64   wrong arguments               78   configuration conflict in the storage
  69   the storage refused for good  79   leadership lost, worker stopped
  71   the system refused a process  80   killed at the deadline, by its thread
  75   not acquired in time         137   killed at the deadline, by the kernel
  81   --check failed, CMD stopped
  126  CMD can't be executed        127   CMD not found
  --result-file tells these from a worker's own.";
