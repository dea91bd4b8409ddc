//! The signals that are passed on to a command: their names, and what each means.

use rustix::process::Signal;
use rustix_libc_wrappers::process::SignalExt as _;
use std::borrow::Cow;

/// What a signal to a guardian means. The command gets each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalMeaning {
    /// Stop. Uncaught, it would end the guardian, and no custom gives it another meaning.
    Stop,
    /// For the command. Without one, it ends the supervisor: a lost terminal, or a key at a terminal.
    CommandOrEnd,
    /// For the command.
    Command,
    /// For the command. At a terminal it is job control, and is not caught.
    JobControl,
}

/// The signals that can be caught (signal(7)), with three exceptions. CHLD is the guardian's own. Handlers of ABRT,
/// BUS, FPE, ILL, SEGV, SYS and TRAP would return into the fault. Rust ignores PIPE: once the pipe between a handler
/// and its reader is closed, a handler of PIPE would be called by its own write, without end.
pub(crate) const NAMED: [(&str, Signal, SignalMeaning); 20] = {
    use SignalMeaning::{Command, CommandOrEnd, JobControl, Stop};
    [
        ("SIGTERM", Signal::TERM, Stop),
        ("SIGINT", Signal::INT, Stop),
        ("SIGHUP", Signal::HUP, CommandOrEnd),
        ("SIGQUIT", Signal::QUIT, CommandOrEnd),
        ("SIGUSR1", Signal::USR1, Command),
        ("SIGUSR2", Signal::USR2, Command),
        ("SIGALRM", Signal::ALARM, Stop),
        ("SIGIO", Signal::IO, Stop),
        ("SIGPROF", Signal::PROF, Stop),
        ("SIGPWR", Signal::POWER, Stop),
        ("SIGSTKFLT", Signal::STKFLT, Stop),
        ("SIGVTALRM", Signal::VTALARM, Stop),
        ("SIGXCPU", Signal::XCPU, Stop),
        ("SIGXFSZ", Signal::XFSZ, Stop),
        ("SIGURG", Signal::URG, Command),
        ("SIGWINCH", Signal::WINCH, Command),
        ("SIGCONT", Signal::CONT, JobControl),
        ("SIGTSTP", Signal::TSTP, JobControl),
        ("SIGTTIN", Signal::TTIN, JobControl),
        ("SIGTTOU", Signal::TTOU, JobControl),
    ]
};

/// How many of [`NAMED`] [`Signals::catch`](crate::Signals::catch) catches. Without a command, no others are needed.
pub(crate) const FIRST: usize = 6;

/// Returns the real-time signals. Uncaught, each would end the guardian.
pub(crate) fn realtime() -> impl Iterator<Item = Signal> {
    (0..).map_while(Signal::rt)
}

/// Returns what a signal means; `None` for one that is not passed on.
pub fn meaning(signal: Signal) -> Option<SignalMeaning> {
    let named = NAMED.into_iter().find_map(|(_, known, meaning)| (known == signal).then_some(meaning));
    named.or_else(|| (signal.as_raw() >= Signal::rt_min().as_raw()).then_some(SignalMeaning::Stop))
}

/// Returns whether `signal` asks supervisor and command to stop.
pub fn asks_to_stop(signal: Signal) -> bool {
    meaning(signal) == Some(SignalMeaning::Stop)
}

/// Returns the signal with this number, if there is one.
pub fn signal_of(number: i32) -> Option<Signal> {
    Signal::from_raw(number)
}

/// Returns the signal of this name, such as `TERM`, `SIGTERM`, `15` or `RTMIN+3`, if it is passed on.
pub fn signal_named(text: &str) -> Option<Signal> {
    let text = text.to_ascii_uppercase();
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let after = |base: &str| name.strip_prefix(base)?.parse::<i32>().ok();
    let named = NAMED.into_iter().find_map(|(known, signal, _)| (&known[3..] == name).then_some(signal));
    let signal = match name {
        "RTMIN" => Some(Signal::rt_min()),
        "RTMAX" => Some(Signal::rt_max()),
        _ => named.or_else(|| after("RTMIN+").and_then(Signal::rt)).or_else(|| {
            let number = after("RTMAX-").map(|below| Signal::rt_max().as_raw() - below);
            Signal::from_raw(number.or_else(|| name.parse().ok())?)
        }),
    };
    signal.filter(|signal| meaning(*signal).is_some())
}

/// Returns the name of the signal with this number, as `SIGTERM`.
pub fn signal_name(number: i32) -> Cow<'static, str> {
    let named = NAMED.into_iter().find_map(|(name, signal, _)| (signal.as_raw() == number).then_some(name));
    if let Some(name) = named.or_else(|| signal_hook::low_level::signal_name(number)) {
        return name.into();
    }
    match number - Signal::rt_min().as_raw() {
        0 => "SIGRTMIN".into(),
        above @ 1.. => format!("SIGRTMIN+{above}").into(),
        _ => format!("signal {number}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_found_by_its_name_or_number() {
        for (text, signal) in [("TERM", Signal::TERM), ("sigwinch", Signal::WINCH), ("3", Signal::QUIT)] {
            assert_eq!(signal_named(text), Some(signal), "{text}");
        }
        for signal in NAMED.into_iter().map(|(_, signal, _)| signal).chain(realtime()) {
            assert_eq!(signal_named(&signal_name(signal.as_raw())), Some(signal));
        }
        assert_eq!(signal_named("RTMAX-1"), Signal::from_raw(Signal::rt_max().as_raw() - 1));
        for text in ["", "KILL", "STOP", "CHLD", "SEGV", "9", "0", "-1", "RTMIN+99", "RTMAX--1", "USR3"] {
            assert_eq!(signal_named(text), None, "{text}");
        }
    }
}
