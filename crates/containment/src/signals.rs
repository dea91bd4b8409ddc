//! [`Signals`]: caught signals with their origin. The caller polls a descriptor for them, and no thread is needed. And
//! [`Terminal`]: the controlling terminal, which sends some of them.

use crate::processes::{own_group, own_session};
use nix::sys::signal::SigSet;
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{Pid, Signal, getpid, kill_process_group},
};
use rustix_libc_wrappers::process::SignalExt as _;
use signal_hook::{
    iterator::{backend::SignalDelivery, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin},
};
use std::{
    borrow::Cow,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
};

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

/// The signals that can be caught (signal(7)), but for CHLD, which is the guardian's own, and for those of faults: ABRT,
/// BUS, FPE, ILL, SEGV, SYS and TRAP. A handler would return into the fault. And but for PIPE, which Rust ignores: once the
/// pipe between a handler and its reader is closed, a handler of PIPE would be called by its own write, without end.
const NAMED: [(&str, Signal, SignalMeaning); 20] = {
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

/// The signals whose meaning is older than this crate's users: a supervisor without a command for them needs no others.
const FIRST: usize = 6;

/// Returns the real-time signals. Uncaught, each would end the guardian.
fn realtime() -> impl Iterator<Item = Signal> {
    (0..).map_while(Signal::rt)
}

/// Returns what a signal means; none for one that is not passed on.
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

/// Ends this process by `signal`. Process 1 can't: for it, returns the status that a shell would report.
pub fn die_of(signal: Signal) -> ExitCode {
    if getpid() != Pid::INIT {
        // Returns only on failure.
        let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
    }
    128_u8.wrapping_add(signal.as_raw() as u8).into()
}

/// A signal that is forwarded to the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardedSignal {
    /// The signal.
    pub signal: Signal,
    /// Whether the terminal has sent it to the command already.
    pub delivered: bool,
}

/// A signal for the command, from the caller to its supervision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalForCommand {
    /// The signal to forward.
    pub passed: ForwardedSignal,
    /// Whether it asks the command to stop.
    pub asks: bool,
}

/// Where a signal to the guardian came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalSource {
    /// The terminal. Its whole foreground group has got the signal, except for HUP, which may be for the
    /// guardian alone.
    Terminal,
    /// Probably the shell that leads the terminal's session.
    Shell,
    /// Any other process.
    Process,
}

/// A caught signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caught {
    /// The signal.
    pub signal: Signal,
    /// Whether the kernel sent it, for a key at the terminal or the loss of the terminal.
    pub from_kernel: bool,
    /// The process that sent it, if this PID namespace has a number for it.
    pub sender: Option<Pid>,
}

/// The signals caught by this process.
#[derive(Debug)]
pub struct Signals(SignalDelivery<UnixStream, WithOrigin>);

impl Signals {
    /// Catches CHLD, TERM, INT, HUP, QUIT, USR1 and USR2.
    ///
    /// All but CHLD, TERM, USR1 and USR2 stay ignored if they were ignored before, as HUP is by `nohup`, and INT and QUIT
    /// are for a script's background jobs.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn catch() -> io::Result<Self> {
        Self::catch_some(NAMED[..FIRST].iter().map(|(_, signal, _)| *signal))
    }

    /// Catches CHLD and every signal that is [passed on](meaning), for a process that the same manager may signal as its
    /// command. Job control only if `with_job_control`: a process that has a terminal must stop and continue with
    /// its job. Others stay ignored as for [`catch`](Self::catch).
    ///
    /// # Errors
    /// As [`catch`](Self::catch).
    pub fn catch_all(with_job_control: bool) -> io::Result<Self> {
        Self::catch_also(with_job_control, &[])
    }

    /// Catches CHLD alone.
    ///
    /// # Errors
    /// As [`catch`](Self::catch).
    pub fn of_children() -> io::Result<Self> {
        Self::catch_these(&[Signal::CHILD])
    }

    fn catch_also(with_job_control: bool, also: &[Signal]) -> io::Result<Self> {
        let named = NAMED
            .into_iter()
            .filter(|(_, _, meaning)| *meaning != SignalMeaning::JobControl || with_job_control);
        let all = named.map(|(_, signal, _)| signal).chain(realtime());
        Self::catch_some(all.chain(also.iter().copied()))
    }

    fn catch_some(signals: impl Iterator<Item = Signal>) -> io::Result<Self> {
        let ignored = ignored_mask();
        let stays_ignored = |signal: &Signal| {
            !matches!(*signal, Signal::TERM | Signal::USR1 | Signal::USR2)
                && ignored & (1 << (signal.as_raw() - 1)) != 0
        };
        let wanted = signals.filter(|signal| !stays_ignored(signal)).chain([Signal::CHILD]);
        Self::catch_these(&wanted.collect::<Vec<_>>())
    }

    /// Catches the signals, and unblocks them in this thread and in those that it starts: the process may
    /// have inherited a mask.
    fn catch_these(wanted: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let numbers = wanted.iter().map(|signal| signal.as_raw());
        let caught = SignalDelivery::with_pipe(read, write, WithOrigin::default(), numbers).map(Self)?;
        let known = wanted.iter().filter_map(|signal| signal.as_raw().try_into().ok());
        known.collect::<SigSet>().thread_unblock()?;
        Ok(caught)
    }

    /// Returns the signals since the last call, if there are any. Never blocks. Several CHLD may merge into
    /// one.
    pub fn pending(&mut self) -> Option<Vec<Caught>> {
        let caught = self.0.pending().filter_map(Caught::of).collect::<Vec<_>>();
        (!caught.is_empty()).then_some(caught)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}

impl Caught {
    fn of(origin: Origin) -> Option<Self> {
        let signal = Signal::from_raw(origin.signal)?;
        let sender = origin.process.and_then(|process| Pid::from_raw(process.pid));
        // The kernel's, for a write beyond the limit of a file. The error of that write says the same.
        if signal == Signal::XFSZ && sender == Some(getpid()) {
            return None;
        }
        Some(Self { signal, from_kernel: origin.cause == Cause::Kernel, sender })
    }
}

/// Returns the signals that this process ignores, from proc(5): bit n − 1 for signal n. Zero if that can't be
/// read.
fn ignored_mask() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

/// Returns whether this process has a controlling terminal.
fn has_terminal() -> bool {
    open_terminal().is_ok()
}

/// Returns whether this process has lost its controlling terminal: it was hung up, or its session leader
/// ended.
pub fn terminal_is_gone() -> bool {
    // Other errors, as for want of descriptors, do not concern the terminal.
    matches!(open_terminal(), Err(Errno::NXIO | Errno::IO))
}

/// Opens the controlling terminal, which only a process with one can (tty(4)).
fn open_terminal() -> Result<OwnedFd, Errno> {
    // Non-blocking, because opening a serial line may wait for its carrier.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open("/dev/tty", flags, Mode::empty())
}

/// The controlling terminal of this process, if it has one.
///
/// With a terminal, guardian and command share a process group, and are one job: Ctrl-C and Ctrl-Z reach both, `fg`
/// and `bg` move both, and the command may read standard input. Otherwise the command has a group of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// This process's group; `None` without a terminal.
    group: Option<Pid>,
    session: Option<Pid>,
}

impl Terminal {
    /// Looks for the controlling terminal.
    pub(crate) fn of_this_process() -> Self {
        Self { group: own_group().filter(|_| has_terminal()), session: own_session() }
    }

    /// Catches the signals of a guardian.
    ///
    /// # Errors
    /// As [`Signals::catch`].
    pub(crate) fn catch(self) -> io::Result<Signals> {
        let leads_session = self.group.is_some() && self.session == Some(getpid());
        Signals::catch_also(self.group.is_none(), if leads_session { &[Signal::TSTP] } else { &[] })
    }

    /// Whether a caught signal is a Ctrl-Z to [undo](Self::undo_stop).
    pub(crate) fn is_stop(self, caught: Caught) -> bool {
        caught.signal == Signal::TSTP && self.group.is_some()
    }

    /// Undoes a Ctrl-Z at a terminal whose session this process leads, as in a container that runs only this
    /// program: there is no shell that could continue the job.
    pub(crate) fn undo_stop(self) {
        if let Some(group) = self.group {
            // The same key has stopped every other process of the group.
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    /// Returns the group that the command shares, if there is a terminal.
    pub(crate) fn group(self) -> Option<Pid> {
        self.group
    }

    /// Returns where a signal came from.
    pub(crate) fn source_of(self, caught: Caught) -> SignalSource {
        match caught {
            Caught { from_kernel: true, .. } if self.group.is_some() => SignalSource::Terminal,
            // The terminal of a group without a number in this PID namespace.
            Caught { from_kernel: true, signal: Signal::HUP, .. } => SignalSource::Terminal,
            // The kernel drops the sender of a signal to a group with members in a lower PID namespace.
            Caught { sender, .. } if self.group.is_some() && (sender.is_none() || sender == self.session) => {
                SignalSource::Shell
            }
            Caught { .. } => SignalSource::Process,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        event::{PollFd, PollFlags, poll},
        process::kill_process,
    };

    #[test]
    fn signal_of_a_process_is_caught_with_its_sender() {
        let mut signals = Signals::catch().unwrap();
        kill_process(getpid(), Signal::USR1).unwrap();
        poll(&mut [PollFd::new(&signals, PollFlags::IN)], None).unwrap();
        let caught = signals.pending().unwrap();
        // Other tests of this process have children.
        let ours = Caught { signal: Signal::USR1, from_kernel: false, sender: Some(getpid()) };
        assert!(caught.contains(&ours), "{caught:?}");
    }

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

    #[test]
    fn mask_shows_the_ignored_sigpipe() {
        assert_ne!(ignored_mask() & (1 << (Signal::PIPE.as_raw() - 1)), 0);
    }
}
