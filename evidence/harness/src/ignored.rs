//! Stops the inheritance of ignored signals.
//!
//! `nohup`, or a shell that runs the tests in the background, ignores signals. Each `vvm` would inherit that
//! and honour it, and a test that sends such a signal would hang.

use std::{
    fs,
    sync::{Arc, Once, atomic::AtomicBool},
};

/// Resets the signals that ask to stop, so that programs started from now on do not ignore them.
pub(super) fn ignore_nothing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        for signal in [1, 2, 3, 15].into_iter().filter(|signal| ignored & (1 << (signal - 1)) != 0) {
            // A caught signal has its default action after an exec (execve(2)).
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
    });
}
