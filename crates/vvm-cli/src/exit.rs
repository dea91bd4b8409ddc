//! The exit statuses of `vvm`, apart from the command's own. 64 to 78 are those of sysexits.h; 79 to 83 are free there;
//! 126, 127 and 128 + n are the shell's.

pub(crate) use vvm_containment::die_of;
pub(crate) use vvm_host::exit_status::*;

pub(crate) const UNHEALTHY: u8 = 81;
/// `vvm once`: every attempt was used, and the period is not done.
pub(crate) const NO_ATTEMPT_LEFT: u8 = 82;
/// `vvm once`: the command succeeded, and the period may not be marked as done.
pub(crate) const NOT_MARKED: u8 = 83;
/// Killed at the deadline, by the kernel or by another process of `vvm`.
pub(crate) const KILLED: u8 = by_signal(9);
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// Ended at the deadline by the deadman's thread.
pub(crate) const DEADMAN: u8 = vvm_deadman::EXIT_STATUS as u8;
const _: () = assert!(vvm_deadman::EXIT_STATUS == 80);

/// `vvm status --exit-status`: a slot is free, or the name is paused.
pub(crate) const STATUS_FREE: u8 = 1;
/// `vvm status --exit-status`: a record has stood unchanged for its TTL.
pub(crate) const STATUS_STALE: u8 = 2;
/// `vvm status --exit-status --no-wait`: a record is of unknown age.
pub(crate) const STATUS_HELD: u8 = 3;

pub(crate) const HELP: &str = "\
Exit status:
  CMD's own, or 128 + n if signal n ended it; if vvm forwarded TERM, INT or HUP
  and CMD died of it, vvm dies of the same signal
  64   wrong arguments               78   configuration conflict in the storage
  69   the storage refused           79   leadership lost, CMD stopped
  71   the system refused a resource 80   killed at the deadline, by its thread
  75   not acquired in time         137   killed at the deadline, by the kernel
  81   --check failed, CMD stopped
  126  CMD can't be executed        127   CMD not found
  --result-file tells these from CMD's own.";
