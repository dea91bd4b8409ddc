//! Blocks signals for the threads that end the process.

use std::{mem::MaybeUninit, ptr};

/// Blocks all signals for the calling thread, except SIGKILL and SIGSTOP, which can't be blocked.
///
/// No signal handler of the program then runs on it, and writing to a closed standard error is an error
/// instead of SIGPIPE.
pub(super) fn block_all() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set behind the pointer, and pthread_sigmask only reads it. A null
    // pointer means that the old mask is not returned.
    let outcome = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut())
    };
    // The only documented error is an invalid first argument (pthread_sigmask(3)).
    debug_assert_eq!(outcome, 0);
}
