//! Signals that whoever started the tests ignores: `nohup`, or a shell that runs them in the background.
//!
//! They would stay ignored in every `vvm` that a test starts, which honours that, and a test that sends one would wait for
//! ever.

use std::{
    fs,
    sync::{Arc, Once, atomic::AtomicBool},
};

/// Sees to it that no program started from now on ignores a signal that asks to stop.
pub(super) fn ignore_nothing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        for signal in [1, 2, 3, 15].into_iter().filter(|signal| ignored & (1 << (signal - 1)) != 0) {
            // What is caught is neither caught nor ignored after an exec (execve(2)).
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
    });
}
