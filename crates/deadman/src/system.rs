//! [`SystemTrigger`]: ends the process at its deadline, with two independent layers.

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

/// How much later than the first layer the second one acts. A running thread needs less to write its message,
/// and it is short compared with the 0.2 TTL that are left then.
pub const SECOND_LAYER_BEHIND: Duration = Duration::from_millis(5);

/// Ends this process at the earliest deadline.
///
/// 1. A thread, on the clock that counts suspend, writes one line to standard error and calls `_exit` with
///    [`EXIT_STATUS`]. It runs no destructor and no exit handler, and takes no lock of other threads. Blocked
///    signals, signal handlers, a stalled async runtime and spinning threads do not affect it.
/// 2. A kernel timer, [`SECOND_LAYER_BEHIND`] later, sends SIGKILL ([`KernelTimer`]). It also ends a process
///    that is stopped (SIGSTOP) or frozen (cgroup v2), or whose first layer can't act: without processor
///    time, without memory, or blocked by a full standard error.
///
/// Two cases remain. While a virtual machine is paused, its processes and their clock stop, too. And the
/// kernel can't kill a process in an uninterruptible system call (a hung disk), or in a frozen cgroup v1: the
/// process dies before it executes its next instruction, but the system call may still take effect. The fence
/// refuses such writes (I2).
///
/// # Threads alone
/// Process 1 of a PID namespace ignores its own SIGKILL timer (measured), and some sandboxes forbid POSIX
/// timers. There a second thread can replace the kernel timer: see [`ThreadsAlone`]. On systems other than
/// Linux it always does. A process that is stopped, frozen or without processor time then does *not* die at
/// its deadline, but soon after it continues.
///
/// # Fork and exec
/// A forked child has neither the thread nor the timer, so do not lead in one. `exec` removes both, so
/// release every leadership before it. The trigger does not end child processes. Contain them by other means:
/// a parent-death signal or a PID namespace.
///
/// # Dropping
/// If a deadline is armed, both layers remain, and act (I4). Otherwise the thread is joined and the timer
/// deleted (I9).
#[derive(Debug)]
pub struct SystemTrigger {
    first: DeadlineThread,
    second: SecondLayer,
}

/// Options of the [`SystemTrigger`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemOptions {
    /// When a second thread replaces the kernel timer.
    pub threads_alone: ThreadsAlone,
}

/// When a second thread replaces the kernel timer, with a [weaker guarantee](SystemTrigger#threads-alone). On
/// systems without such timers it always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadsAlone {
    /// Never. Process 1 of a PID namespace is refused.
    #[default]
    Never,
    /// In process 1 of a PID namespace.
    AsInit,
    /// Always, for a sandbox that forbids POSIX timers.
    Always,
}

impl SystemTrigger {
    /// Starts both layers without a deadline. A process needs one trigger and one set: see
    /// [`Deadman::system`].
    ///
    /// # Errors
    /// [`ArmError::UnkillableInit`]. [`ArmError::Kernel`] if the process is out of threads, file descriptors
    /// or timers (which count as pending signals, `ulimit -i`).
    pub fn start(options: SystemOptions) -> Result<Arc<Self>, ArmError> {
        let second = SecondLayer::start(options.threads_alone)?;
        let first = DeadlineThread::start("deadman", |at, subject| {
            last_words::write_last_words(at, subject);
            exit::now()
        })
        .map_err(ArmError::Kernel)?;
        Ok(Arc::new(Self { first, second }))
    }
}

impl Trigger for SystemTrigger {
    /// Makes one system call, and a second one for the thread only if the deadline becomes earlier than the
    /// thread's alarm. The thread notices a later deadline when the old alarm wakes it.
    ///
    /// The thread compares the time under the same lock. Once it has found the deadline passed, this call
    /// does not return, and the kernel timer does not change.
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let behind = earliest.map(|(at, subject)| (at.after(SECOND_LAYER_BEHIND), subject));
        self.first.set(earliest, || self.second.set(behind))
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

impl Deadman {
    /// Returns a set with a [`SystemTrigger`]: its earliest deadline ends this process. A process needs one.
    ///
    /// # Errors
    /// The same as [`SystemTrigger::start`].
    pub fn system(options: SystemOptions) -> Result<Self, ArmError> {
        Ok(Self::with_trigger(SystemTrigger::start(options)?))
    }
}
