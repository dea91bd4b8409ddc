//! [`Signals`]: caught signals with their origin. The caller polls a descriptor for them, and no thread is needed. And
//! [`Terminal`]: the controlling terminal, which sends some of them.

use crate::{
    processes::{own_group, own_session, read_text},
    signal_table::{FIRST, NAMED, SignalMeaning, meaning, realtime, signal_of},
};
use nix::sys::signal::SigSet;
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{Pid, Signal, getpid, kill_process_group},
};
use signal_hook::{
    iterator::{backend::SignalDelivery, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin},
};
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
};
use vvm_clock::Instant;

/// Ends this process by `signal`. If it can't, as process 1, returns the status that a shell would report.
pub fn die_of(signal: Signal) -> ExitCode {
    if getpid() != Pid::INIT && can_die_of(signal) {
        // Returns only on failure.
        let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
    }
    128_u8.wrapping_add(signal.as_raw() as u8).into()
}

/// Whether [`die_of`] ends a process by `signal`, unless it is process 1.
pub fn can_die_of(signal: Signal) -> bool {
    // `signal_hook` does not know the others, or does not end the process.
    Signal::from_named_raw(signal.as_raw()).is_some()
        && meaning(signal) != Some(SignalMeaning::JobControl)
        && !matches!(signal, Signal::CHILD | Signal::STOP | Signal::IO | Signal::URG | Signal::WINCH)
        && !matches!(signal, Signal::POWER | Signal::STKFLT)
}

/// A signal that is forwarded to the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardedSignal {
    /// The signal.
    pub signal: Signal,
    /// When the supervisor received it, if the terminal sent it. A command in the terminal's group then got it, too.
    pub delivered: Option<Instant>,
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
    /// The terminal. Its whole foreground group got the signal, except for HUP, which may be for the guardian alone.
    Terminal,
    /// Probably the shell that leads the terminal's session.
    Shell,
    /// Any other process.
    Process,
}

/// A caught signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: Signal,
    /// Whether the kernel sent it, for a key at the terminal or the loss of the terminal.
    pub from_kernel: bool,
    /// The process that sent it, if this PID namespace has a number for it.
    pub sender: Option<Pid>,
}

/// Returns `signals` without those that this process ignores, as HUP by `nohup`. TERM, USR1 and USR2 always stay.
fn unless_ignored(signals: impl Iterator<Item = Signal>) -> impl Iterator<Item = Signal> {
    let ignored = ignored_mask();
    signals.filter(move |signal| {
        matches!(*signal, Signal::TERM | Signal::USR1 | Signal::USR2) || !contains(ignored, *signal)
    })
}

/// Whether this process ignores `signal`.
pub fn is_ignored(signal: Signal) -> bool {
    contains(ignored_mask(), signal)
}

fn contains(mask: u64, signal: Signal) -> bool {
    mask & (1 << (signal.as_raw() - 1)) != 0
}

fn first() -> impl Iterator<Item = Signal> {
    NAMED[..FIRST].iter().map(|(_, signal, _)| *signal)
}

/// The signals caught by this process.
#[derive(Debug)]
pub struct Signals(SignalDelivery<UnixStream, WithOrigin>);

impl Signals {
    /// Catches CHLD, TERM, INT, HUP, QUIT, USR1 and USR2. INT, HUP and QUIT stay ignored if they were ignored before,
    /// as HUP is by `nohup`, and INT and QUIT are for a script's background jobs. Fails if no descriptor is left.
    pub fn catch() -> io::Result<Self> {
        Self::catch_some(first())
    }

    /// Catches CHLD and every signal that is [passed on](crate::meaning), for a process that a service manager signals
    /// together with the command. Catches job control only if `with_job_control`: a process with a terminal must stop
    /// and continue with its job. Ignored signals stay ignored, as for [`catch`](Self::catch).
    pub fn catch_all(with_job_control: bool) -> io::Result<Self> {
        Self::catch_also(with_job_control, &[])
    }

    /// Catches CHLD alone.
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
        Self::catch_these(&unless_ignored(signals).chain([Signal::CHILD]).collect::<Vec<_>>())
    }

    /// Blocks the signals of [`catch`](Self::catch), so that the kernel keeps them until this thread catches signals
    /// again. Returns those that came before.
    pub fn hand_over(mut self) -> io::Result<Vec<ReceivedSignal>> {
        let known = unless_ignored(first()).filter_map(|signal| signal.as_raw().try_into().ok());
        known.collect::<SigSet>().thread_block()?;
        Ok(self.pending().unwrap_or_default())
    }

    /// Catches the signals, and unblocks them here and in threads started later: the mask may have been inherited.
    fn catch_these(wanted: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let numbers = wanted.iter().map(|signal| signal.as_raw());
        let caught = SignalDelivery::with_pipe(read, write, WithOrigin::default(), numbers).map(Self)?;
        let known = wanted.iter().filter_map(|signal| signal.as_raw().try_into().ok());
        known.collect::<SigSet>().thread_unblock()?;
        Ok(caught)
    }

    /// Returns the signals since the last call, if there are any. Never blocks. Several CHLD may merge into one.
    pub fn pending(&mut self) -> Option<Vec<ReceivedSignal>> {
        let caught = self.0.pending().filter_map(ReceivedSignal::from_origin).collect::<Vec<_>>();
        (!caught.is_empty()).then_some(caught)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}

impl ReceivedSignal {
    fn from_origin(origin: Origin) -> Option<Self> {
        let signal = signal_of(origin.signal)?;
        let sender = origin.process.and_then(|process| Pid::from_raw(process.pid));
        // The kernel sent it for a write beyond the limit of a file. The error of that write says the same.
        if signal == Signal::XFSZ && sender == Some(getpid()) {
            return None;
        }
        Some(Self { signal, from_kernel: origin.cause == Cause::Kernel, sender })
    }
}

/// Returns the signals that this process ignores, from proc(5): bit n − 1 for signal n. Zero if that can't be read.
fn ignored_mask() -> u64 {
    let status = read_text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

fn has_terminal() -> bool {
    open_terminal().is_ok()
}

/// Returns whether this process has lost its controlling terminal: it was hung up, or its session leader ended.
pub fn terminal_is_gone() -> bool {
    // Other errors, as for want of descriptors, do not concern the terminal.
    matches!(open_terminal(), Err(Errno::NXIO | Errno::IO))
}

fn open_terminal() -> Result<OwnedFd, Errno> {
    // Non-blocking, because opening a serial line may wait for its carrier.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open("/dev/tty", flags, Mode::empty())
}

/// The controlling terminal of this process, if it has one. With a terminal, guardian and command share a process
/// group, and are one job: Ctrl-C and Ctrl-Z reach both, `fg` and `bg` move both, and the command may read standard
/// input. Otherwise the command has a group of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// This process's group; `None` without a terminal.
    group: Option<Pid>,
    session: Option<Pid>,
}

impl Terminal {
    pub(crate) fn of_this_process() -> Self {
        Self { group: own_group().filter(|_| has_terminal()), session: own_session() }
    }

    pub(crate) fn catch(self) -> io::Result<Signals> {
        let leads_session = self.group.is_some() && self.session == Some(getpid());
        Signals::catch_also(self.group.is_none(), if leads_session { &[Signal::TSTP] } else { &[] })
    }

    pub(crate) fn is_stop(self, caught: ReceivedSignal) -> bool {
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

    pub(crate) fn group(self) -> Option<Pid> {
        self.group
    }

    pub(crate) fn source_of(self, caught: ReceivedSignal) -> SignalSource {
        match caught {
            // The kernel's others, for limits and for timers that survive `exec`, are for this process alone.
            ReceivedSignal {
                from_kernel: true, signal: Signal::INT | Signal::QUIT | Signal::WINCH, ..
            } if self.group.is_some() => SignalSource::Terminal,
            // Also of a terminal whose group has no number in this PID namespace.
            ReceivedSignal { from_kernel: true, signal: Signal::HUP, .. } => SignalSource::Terminal,
            // The kernel drops the sender of a signal to a group with members in a lower PID namespace.
            ReceivedSignal { from_kernel: false, sender, .. }
                if self.group.is_some() && (sender.is_none() || sender == self.session) =>
            {
                SignalSource::Shell
            }
            ReceivedSignal { .. } => SignalSource::Process,
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
        let ours = ReceivedSignal { signal: Signal::USR1, from_kernel: false, sender: Some(getpid()) };
        assert!(caught.contains(&ours), "{caught:?}");
    }

    #[test]
    fn key_reaches_the_group_and_a_timer_this_process_alone() {
        let terminal = Terminal { group: Some(getpid()), session: Some(getpid()) };
        let from_kernel =
            |signal| terminal.source_of(ReceivedSignal { signal, from_kernel: true, sender: None });
        for key in [Signal::INT, Signal::QUIT, Signal::WINCH, Signal::HUP] {
            assert_eq!(from_kernel(key), SignalSource::Terminal, "{key:?}");
        }
        for timer in [Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::XCPU] {
            assert_eq!(from_kernel(timer), SignalSource::Process, "{timer:?}");
        }
    }

    #[test]
    fn mask_shows_the_ignored_sigpipe() {
        assert!(is_ignored(Signal::PIPE));
    }
}
