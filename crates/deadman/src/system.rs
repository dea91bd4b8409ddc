mod deadline_thread;
mod kernel_timer;

pub use kernel_timer::KernelTimer;

use crate::{ArmError, Deadman, Subject, Trigger};
use deadline_thread::DeadlineThread;
use std::{io, sync::Arc, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How much later than the first layer the second one acts. A running thread needs less to write its message,
/// and it is short compared with the 0.2 TTL that are left then.
pub const SECOND_LAYER_BEHIND: Duration = Duration::from_millis(5);

/// The exit status of a process that its deadline ended.
pub const EXIT_STATUS: i32 = 80;

/// Ends this process at the earliest deadline.
///
/// 1. A thread, on the clock that counts suspend, writes one line to standard error and calls `_exit` with
///    [`EXIT_STATUS`]. It runs no destructor and no exit handler, and takes no lock of other threads. Blocked
///    signals, signal handlers, a stalled async runtime and spinning threads do not affect it.
/// 2. A kernel timer, [`SECOND_LAYER_BEHIND`] later, sends SIGKILL ([`KernelTimer`]). It also ends a process
///    that is stopped (SIGSTOP) or frozen (cgroup v2), or whose first layer can't act: without processor
///    time, without memory, or blocked by a full standard error.
///
/// Two cases remain. While a virtual machine is paused, its processes and their clock stop, too. And the kernel can't
/// kill a process in an uninterruptible system call (a hung disk), or in a frozen cgroup v1: the process dies before it
/// executes its next instruction, but the system call may still take effect. The fence refuses such writes (I2).
///
/// # Fork and exec
/// A forked child has neither thread nor timer, so do not lead in one. `exec` removes both: release every leadership
/// before. The trigger does not end child processes: contain them by a parent-death signal or a PID namespace.
///
/// # Dropping
/// If a deadline is armed, both layers remain, and act (I4). Otherwise the thread is joined and the timer deleted (I9).
#[derive(Debug)]
pub struct SystemTrigger {
    first: DeadlineThread,
    second: KernelTimer,
}

impl SystemTrigger {
    /// Starts both layers without a deadline. A process needs one trigger and one set: see [`Deadman::system`]. Fails
    /// if the process is out of threads or file descriptors, or for a reason of [`KernelTimer::new`].
    pub fn start() -> Result<Arc<Self>, ArmError> {
        let second = KernelTimer::new().map_err(ArmError::Kernel)?;
        let first = DeadlineThread::start("deadman", |at, subject| {
            deadline_thread::write_last_words(at, subject);
            end_now()
        })
        .map_err(ArmError::Kernel)?;
        Ok(Arc::new(Self { first, second }))
    }
}

impl Trigger for SystemTrigger {
    /// Makes one system call, and a second one for the thread only if the deadline becomes earlier than the thread's
    /// alarm: a later one is noticed when the old alarm wakes the thread. The thread compares the time under the same
    /// lock. Once it has found the deadline passed, this call does not return, and the kernel timer stays.
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let behind = earliest.map(|(at, _)| at.after(SECOND_LAYER_BEHIND));
        self.first.set(earliest, || self.second.set(behind))
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

impl Deadman {
    /// Returns the set of this process, with a [`SystemTrigger`]. One is enough. Fails as [`SystemTrigger::start`].
    pub fn system() -> Result<Self, ArmError> {
        Ok(Self::with_trigger(SystemTrigger::start()?))
    }
}

/// Ends the process without destructors, exit handlers or flushing, because each of them may hang.
fn end_now() -> ! {
    // SAFETY: takes a number, accesses no memory of the program, and does not return.
    unsafe { libc::_exit(EXIT_STATUS) }
}
