//! What a signal asks of a candidate, beside what `vvm_containment` says of signals.

use rustix::process::Signal;
pub(crate) use vvm_containment::{Caught, Signals, asks_to_stop, signal_name as name};

/// Whether `signal` ends a `vvm` that has no command to pass it on to: what it would do to any program that
/// knows nothing of it, so that closing a terminal ends a candidate, too. USR1 and USR2 are for a command
/// alone.
pub(crate) fn ends_a_candidate(signal: Signal) -> bool {
    asks_to_stop(signal) || matches!(signal, Signal::HUP | Signal::QUIT)
}
