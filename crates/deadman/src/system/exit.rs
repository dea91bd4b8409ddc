//! Ends the process at once.

/// The exit status of a process that its deadline ended.
pub const EXIT_STATUS: i32 = 80;

/// Ends the process without destructors, exit handlers or flushing, because each of them may hang.
pub(super) fn now() -> ! {
    // SAFETY: takes a number, accesses no memory of the program, and does not return.
    unsafe { libc::_exit(EXIT_STATUS) }
}
