//! Signals that end a process without a command.

use rustix::process::Signal;
pub(crate) use vvm_containment::{Caught, Signals, asks_to_stop, signal_name as name};

/// Whether `signal` ends a `vvm` that has no command to forward it to. Closing a terminal ends a candidate,
/// too; USR1 and USR2 are for a command alone.
pub(crate) fn ends_a_candidate(signal: Signal) -> bool {
    asks_to_stop(signal) || matches!(signal, Signal::HUP | Signal::QUIT)
}
