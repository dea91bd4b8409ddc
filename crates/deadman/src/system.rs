//! The trigger of a real process: two layers behind every deadline, so that no single thing that hangs keeps
//! it alive.
//!
//! What lives here: [`SystemTrigger`], which puts the layers together. The layers have files of their own: a
//! thread that waits ([`deadline_thread`]), what it says ([`last_words`]) and does ([`exit`](mod@exit)), and
//! the kernel's timer.

mod deadline_thread;
mod exit;
#[cfg(target_os = "linux")]
mod kernel_timer;
mod last_words;
mod second_layer;
mod signals;
#[cfg(target_os = "linux")]
mod wall_clock;

pub use exit::EXIT_STATUS;
#[cfg(target_os = "linux")]
pub use kernel_timer::KernelTimer;
#[cfg(target_os = "linux")]
pub use wall_clock::WallClockState;

use crate::{ArmError, Deadman, Subject, Trigger};
use deadline_thread::DeadlineThread;
use second_layer::SecondLayer;
use std::{io, sync::Arc, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How much later than the first layer the second one acts: long enough for a thread that is awake to say its
/// last words, short enough not to matter beside the 0.2·TTL that are left then.
pub const SECOND_LAYER_BEHIND: Duration = Duration::from_millis(5);

/// Ends this process at the earliest deadline.
///
/// 1. A thread of its own, on the clock that counts suspend, writes one line to standard error and `_exit`s
///    with [`EXIT_STATUS`]: no destructor, no exit handler, no lock that somebody else may hold. Blocked
///    signals, handlers, a stalled async runtime, threads that spin: none of them matters to it.
/// 2. A timer in the kernel, [`SECOND_LAYER_BEHIND`] later, sends SIGKILL ([`KernelTimer`]). It also ends a
///    process that is stopped (SIGSTOP), frozen (cgroup v2), or whose first layer is kept from acting:
///    starved of processor time, out of memory, or blocked by a standard error that nobody reads.
///
/// What no process can do for itself: run while its virtual machine is paused, or leave a system call that
/// the kernel does not let it be killed in (a hung disk). A process that is throttled or in a frozen cgroup
/// v1 dies when it would next have run. In none of these cases does it execute another instruction of its own
/// after the second layer's moment, except in the paused virtual machine, whose clock stands still too; a
/// system call that was under way may still take effect. That is what the fence is for (I2).
///
/// # Threads alone
/// Process 1 of a PID namespace ignores its own SIGKILL timer (measured), and some sandboxes forbid POSIX
/// timers. There the second layer can be a second thread, silent, in place of the kernel: see
/// [`ThreadsAlone`]. On systems other than Linux it always is. Then a process that is stopped or frozen, or
/// that gets no processor time, does *not* die at its deadline, but as soon as it runs again, possibly after
/// having run for a moment.
///
/// # Fork and exec
/// A forked child has neither thread nor timer: nothing guards it. Don't lead in one. After `exec` the new
/// program has neither, too: hand back every leadership first. A child process is not ended along with this
/// one: what it does under a leadership has to be contained by other means (a parent-death signal, a PID
/// namespace).
///
/// # Dropping
/// Dropped while a deadline is armed, both layers stay for good, and act (I4). Else the thread is joined and
/// the timer deleted (I9).
#[derive(Debug)]
pub struct SystemTrigger {
    first: DeadlineThread,
    second: SecondLayer,
}

/// How to start the [`SystemTrigger`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemOptions {
    /// When to do without the kernel's timer.
    pub threads_alone: ThreadsAlone,
}

/// When two threads of the process itself are accepted in place of a thread and the kernel's timer, with what
/// that [loses](SystemTrigger#threads-alone). Of no meaning where there are no such timers: then it is
/// threads, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadsAlone {
    /// Never: process 1 of a PID namespace is refused.
    #[default]
    Never,
    /// In process 1 of a PID namespace.
    AsInit,
    /// Always, for a sandbox that forbids POSIX timers.
    Always,
}

impl SystemTrigger {
    /// Starts both layers, with nothing armed. One for each process, and one set of deadlines for each: see
    /// [`Deadman::system`].
    ///
    /// # Errors
    /// [`ArmError::UnkillableInit`]; [`ArmError::Kernel`] when the process is out of threads, file
    /// descriptors or timers (which count as pending signals, `ulimit -i`).
    pub fn start(options: SystemOptions) -> Result<Arc<Self>, ArmError> {
        let second = SecondLayer::start(options.threads_alone)?;
        let first = DeadlineThread::start("deadman", |at, subject| {
            last_words::say(at, subject);
            exit::now()
        })
        .map_err(ArmError::Kernel)?;
        Ok(Arc::new(Self { first, second }))
    }
}

impl Trigger for SystemTrigger {
    /// At most one system call, `timer_settime`; a second one, for the thread, only when the deadline becomes
    /// earlier than all that the thread has ever slept towards. A deadline that moves later is noticed by the
    /// thread when the earlier one wakes it.
    ///
    /// The thread decides under the lock under which both layers are set here: once it has found the deadline
    /// passed, this no longer returns, and the kernel's timer stays where it was.
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let behind = earliest.map(|(at, subject)| (at.after(SECOND_LAYER_BEHIND), subject));
        self.first.set(earliest, || self.second.set(behind))
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

impl Deadman {
    /// A set whose earliest deadline ends this process, with both layers of [`SystemTrigger`]. One for each
    /// process.
    ///
    /// # Errors
    /// As [`SystemTrigger::start`].
    pub fn system(options: SystemOptions) -> Result<Self, ArmError> {
        Ok(Self::with_trigger(SystemTrigger::start(options)?))
    }
}
