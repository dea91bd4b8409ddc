//! The end of this process, on the spot.

/// The status with which the deadman's thread ends the process.
pub const EXIT_STATUS: i32 = 80;

/// Ends the process without destructors, exit handlers or flushing: any of them may hang, or wait for a lock
/// that a stopped thread holds.
pub(super) fn now() -> ! {
    // SAFETY: takes a number, touches no memory of ours and does not return.
    unsafe { libc::_exit(EXIT_STATUS) }
}
