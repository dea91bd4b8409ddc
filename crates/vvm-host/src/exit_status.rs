//! The exit statuses of hosts and operator commands. 64 to 78 are those of sysexits.h; 79 is free there.
//! `docs/operations.md` lists all statuses of `vvm`.

use vvm_storage::OpenError;

/// Wrong arguments.
pub const MISUSE: u8 = 64;
/// An operator command: there is no such storage or name.
pub const UNKNOWN: u8 = 66;
/// The storage refused for good: address, credentials, schema.
pub const STORAGE: u8 = 69;
/// The operating system refused a process or a resource.
pub const SYSTEM: u8 = 71;
/// Leadership was not acquired in time.
pub const NOT_ACQUIRED: u8 = 75;
/// An operator's request has begun and is not finished (`EX_PROTOCOL` of sysexits.h).
pub const UNFINISHED: u8 = 76;
/// The storage holds another configuration of this cluster.
pub const CONFLICT: u8 = 78;
/// Leadership was lost, and the worker stopped in time.
pub const LOST: u8 = 79;

/// Returns the status of a storage that can't be opened.
pub fn of_open_error(error: &OpenError) -> u8 {
    match error {
        _ if error.is_misuse() => MISUSE,
        _ if error.is_of_system() => SYSTEM,
        _ => STORAGE,
    }
}

/// Returns the status that a shell reports for a process that signal `number` killed.
pub const fn by_signal(number: i32) -> u8 {
    128_u8.wrapping_add(number as u8)
}
