//! The exit statuses that hosts and operator commands share.
//!
//! 64 to 78 are those of sysexits.h; 79 is free there. `docs/vvm-run.md` lists all statuses of `vvm`.

/// Wrong arguments.
pub const MISUSE: u8 = 64;
/// `vvm status`: there is nothing of this name to show.
pub const UNKNOWN: u8 = 66;
/// The storage refused us for good: address, credentials, schema.
pub const STORAGE: u8 = 69;
/// The operating system refused a process, or something that one needs.
pub const SYSTEM: u8 = 71;
/// Leadership was not acquired in time.
pub const NOT_ACQUIRED: u8 = 75;
/// Asked for, begun, and not (yet) come to what was asked for. (`EX_PROTOCOL` of sysexits.h, which says
/// nothing here.)
pub const UNFINISHED: u8 = 76;
/// The storage holds another configuration of this cluster.
pub const CONFLICT: u8 = 78;
/// Leadership was lost, and the worker stopped in time.
pub const LOST: u8 = 79;
/// What a shell reports of a process that died of signal `number`.
pub const fn by_signal(number: i32) -> u8 {
    128_u8.wrapping_add(number as u8)
}
