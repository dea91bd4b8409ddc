//! Signals as something to poll for, each with where it came from. No thread, and nothing but a write in the
//! handler.

use rustix::process::{Pid, Signal, getpid};
use signal_hook::{
    iterator::{backend::SignalDelivery, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
};

/// What a guardian passes on to the command.
pub const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Whether `signal` asks for the end, of the supervisor as well as of its command.
pub fn asks_to_stop(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::INT)
}

/// `SIGTERM` and so on, for people.
pub fn signal_name(signal: Signal) -> &'static str {
    signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal")
}

/// Dies of `signal`, as its default action would have it. Process 1 can't, and exits as a shell would report
/// it.
pub fn die_of(signal: Signal) -> ExitCode {
    if getpid() != Pid::INIT {
        // Returns only when it failed, and then the status says the same.
        let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
    }
    128_u8.wrapping_add(signal.as_raw() as u8).into()
}

/// A signal on its way to the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardedSignal {
    /// This one.
    pub signal: Signal,
    /// The terminal has given it to the command.
    pub delivered: bool,
}

/// A signal for the command, as its supervision is told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalForCommand {
    /// What is passed on.
    pub passed: ForwardedSignal,
    /// It asks for the end.
    pub asks: bool,
}

/// Where a signal to the guardian came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalSource {
    /// The terminal. All of its foreground group has the signal, unless it is HUP, which may be for the
    /// guardian alone.
    Terminal,
    /// The shell that leads the terminal's session, or possibly it.
    Shell,
    /// Any other process.
    Process,
}

/// A signal that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caught {
    /// This one.
    pub signal: Signal,
    /// Whether the kernel made it: a key at the terminal, or the loss of the terminal.
    pub from_kernel: bool,
    /// The process that sent it, if one did and this PID namespace has a number for it.
    pub sender: Option<Pid>,
}

/// The signals caught by this process.
#[derive(Debug)]
pub struct Signals(SignalDelivery<UnixStream, WithOrigin>);

impl Signals {
    /// Catches [`FORWARDED`] and the ends of children from here on.
    ///
    /// HUP, INT and QUIT stay ignored where they were ignored before: that is how `nohup` and a script's
    /// background jobs tell a program that these are not meant for it.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn catch() -> io::Result<Self> {
        Self::catch_also(&[])
    }

    /// Catches the ends of children, and nothing else.
    ///
    /// # Errors
    /// As [`catch`](Self::catch).
    pub fn of_children() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        SignalDelivery::with_pipe(read, write, WithOrigin::default(), [Signal::CHILD.as_raw()]).map(Self)
    }

    /// [`catch`](Self::catch), and these signals.
    ///
    /// # Errors
    /// As there.
    pub fn catch_also(also: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let ignored = ignored_mask();
        let stays_ignored = |signal: &Signal| {
            matches!(*signal, Signal::HUP | Signal::INT | Signal::QUIT)
                && ignored & (1 << (signal.as_raw() - 1)) != 0
        };
        let forwarded = FORWARDED.into_iter().filter(|signal| !stays_ignored(signal));
        let wanted = forwarded.chain([Signal::CHILD]).chain(also.iter().copied());
        SignalDelivery::with_pipe(read, write, WithOrigin::default(), wanted.map(Signal::as_raw)).map(Self)
    }

    /// What came since the last look, if anything did. Never blocks. Ends of children merge, so that one may
    /// stand for many.
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
        let signal = Signal::from_named_raw(origin.signal)?;
        let sender = origin.process.and_then(|process| Pid::from_raw(process.pid));
        Some(Self { signal, from_kernel: origin.cause == Cause::Kernel, sender })
    }
}

/// Which signals this process ignores, as proc(5) shows them: bit n − 1 for signal n. None when that can't be
/// read.
fn ignored_mask() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        event::{PollFd, PollFlags, poll},
        process::{getpid, kill_process},
    };

    #[test]
    fn a_signal_of_a_process_is_caught_with_its_sender() {
        let mut signals = Signals::catch().unwrap();
        kill_process(getpid(), Signal::USR1).unwrap();
        poll(&mut [PollFd::new(&signals, PollFlags::IN)], None).unwrap();
        let caught = signals.pending().unwrap();
        // Other tests of this process have children.
        let ours = Caught { signal: Signal::USR1, from_kernel: false, sender: Some(getpid()) };
        assert!(caught.contains(&ours), "{caught:?}");
    }

    #[test]
    fn the_runtime_ignores_broken_pipes_and_the_mask_shows_it() {
        assert_ne!(ignored_mask() & (1 << (Signal::PIPE.as_raw() - 1)), 0);
    }
}
