//! The exit statuses of `vvm`, apart from a worker's own.
//!
//! 64 to 78 are those of sysexits.h; 79 to 81 are free there; 126, 127 and 128 + n are the shell's.

/// Wrong arguments.
pub(crate) const MISUSE: u8 = 64;
/// `vvm status`: there is nothing of this name to show.
pub(crate) const UNKNOWN: u8 = 66;
/// The storage refused us for good: address, credentials, schema.
pub(crate) const STORAGE: u8 = 69;
/// The operating system refused a process, or something that one needs.
pub(crate) const SYSTEM: u8 = 71;
/// Leadership was not acquired in time.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// Asked for, begun, and not (yet) come to what was asked for. (`EX_PROTOCOL` of sysexits.h, which says nothing here.)
pub(crate) const UNFINISHED: u8 = 76;
/// The storage holds another configuration of this cluster.
pub(crate) const CONFLICT: u8 = 78;
/// Leadership was lost, and the worker stopped in time.
pub(crate) const LOST: u8 = 79;
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

/// What a shell reports of a process that died of signal `number`.
pub(crate) const fn by_signal(number: i32) -> u8 {
    128_u8.wrapping_add(number as u8)
}

pub(crate) use vvm_containment::die_of;

/// For `--help`.
pub(crate) const HELP: &str = "\
Exit status:
  the worker's own, or 128 + n if signal n ended it; if it was told to stop by
  TERM or INT and died of it, vvm dies of the same signal
  64   wrong arguments               78   configuration conflict in the storage
  69   the storage refused for good  79   leadership lost, worker stopped
  71   the system refused a process  80   killed at the deadline, by its thread
  75   not acquired in time         137   killed at the deadline, by the kernel
  81   --check failed, CMD stopped
  126  CMD can't be executed        127   CMD not found
  --result-file tells these from a worker's own.";
