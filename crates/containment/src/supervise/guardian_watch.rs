//! [`GuardianWatch`]: ends the supervisor after its guardian has died. The keeper kills the command.
//!
//! A thread of its own, because the main thread may hang in a storage call. It gives the main thread a
//! limited time to hand back a lease after the proof (I6), and disarms no deadline (I4).

use crate::established::Containment;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    process::{Signal, getpid, kill_process},
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::{Instant, SystemClock};

/// For handing back after the guardian's death and the command's end: a history entry and a deletion, with
/// one or two retries. With a slower storage, the next leader waits for the rest of the TTL. Not longer,
/// because the process that started the guardian does not know this one.
const HANDING_BACK: Duration = Duration::from_secs(5);

/// The pause between two looks whether a keeper still runs.
const LOOK: Duration = Duration::from_millis(20);

/// How long before the kill deadline the thread stops waiting: it then ends this process before the deadman
/// does.
const BEFORE_THE_DEADLINE: Duration = vvm_deadman::SECOND_LAYER_BEHIND.saturating_mul(2);

/// A running watch.
#[derive(Debug)]
pub struct GuardianWatch {
    guardian: Arc<OwnedFd>,
    done: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

/// The state of the thread.
struct Watch<OnDeath> {
    guardian: Arc<OwnedFd>,
    /// Readable once the watch is ended.
    done: Arc<OwnedFd>,
    containment: Containment,
    on_death: OnDeath,
    deadline: watch::Receiver<Option<Instant>>,
}

impl GuardianWatch {
    /// Watches the process of the descriptor `guardian`. When it ends, calls `on_death`, and kills this
    /// process as soon as [`end`](Self::end) is called, at the latest shortly before `deadline`. No keeper
    /// may be started after `on_death`.
    ///
    /// # Errors
    /// If the process is out of descriptors or threads.
    pub fn start(
        guardian: Arc<OwnedFd>,
        containment: Containment,
        on_death: impl FnOnce() + Send + 'static,
        deadline: watch::Receiver<Option<Instant>>,
    ) -> io::Result<Self> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = Watch {
            guardian: Arc::clone(&guardian),
            done: Arc::clone(&done),
            containment,
            on_death,
            deadline,
        };
        let thread = thread::Builder::new().name("guardian-watch".into()).spawn(move || watch.keep())?;
        Ok(Self { guardian, done, thread })
    }

    /// Ends the watch once nothing depends on the guardian any more, and returns the guardian's descriptor.
    /// If the guardian is dead, this process ends here.
    pub fn end(self) -> Arc<OwnedFd> {
        // The only write. An eventfd refuses a one only at 2^64 - 2 (eventfd(2)).
        let _ = rustix::io::write(&*self.done, &1_u64.to_ne_bytes());
        // A thread that panicked has ended, too.
        let _ = self.thread.join();
        self.guardian
    }
}

impl<OnDeath: FnOnce()> Watch<OnDeath> {
    fn keep(self) {
        let mut fds = [PollFd::new(&self.guardian, PollFlags::IN), PollFd::new(&self.done, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        if fds[0].revents().is_empty() {
            return;
        }
        (self.on_death)();
        self.containment.await_handing_back(&self.done, &self.deadline);
        self.containment.dissolve();
        // Not `exit`, whose handlers could wait for a thread that hangs.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

impl Containment {
    /// Waits until the main thread has handed back, or its time is over.
    fn await_handing_back(&self, done: &OwnedFd, deadline: &watch::Receiver<Option<Instant>>) {
        let mut give_up_at = Instant::NEVER;
        loop {
            let now = SystemClock::read();
            // While a keeper waits for a process that can't be killed, the lease is renewed: that process may
            // work.
            if give_up_at == Instant::NEVER && !self.has_keeper() {
                give_up_at = now.after(HANDING_BACK);
            }
            // Renewals may still move the deadline. An earlier one is the deadman's task.
            let deadline = deadline.borrow().unwrap_or(Instant::NEVER);
            let left = now.until(give_up_at.min(deadline.before(BEFORE_THE_DEADLINE)));
            let (false, Ok(longest)) = (left.is_zero(), Timespec::try_from(left.min(LOOK))) else { return };
            let mut done = [PollFd::new(done, PollFlags::IN)];
            // After an interruption, again with the time left.
            if poll(&mut done, Some(&longest)).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
    }
}
