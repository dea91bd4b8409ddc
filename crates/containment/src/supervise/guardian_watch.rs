//! If the guardian dies, everything goes. The keeper kills what the command has started; one thread of the
//! supervisor sees to it that the supervisor goes, too.
//!
//! A thread of its own, because the main one may hang in a storage call just then. It asks nothing of the
//! main thread but to be quick with what follows the proof that nothing is left, as handing back a lease
//! (I6), and never disarms (I4).

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

/// For handing back after the guardian's death, once nothing of the command is left: a note in the history
/// and a deletion, tried again once or twice where the network blinks. A storage that takes longer costs the
/// next leader what is left of the TTL. Not more, because the starter of the guardian knows nothing of this
/// process any more.
const HANDING_BACK: Duration = Duration::from_secs(5);

/// Between two looks whether a keeper still runs.
const LOOK: Duration = Duration::from_millis(20);

/// How long before the kill deadline it is given up: after it, there would be last words, which nothing waits
/// for.
const BEFORE_THE_DEADLINE: Duration = vvm_deadman::SECOND_LAYER_BEHIND.saturating_mul(2);

/// The watch, until it is ended.
#[derive(Debug)]
pub struct GuardianWatch {
    guardian: Arc<OwnedFd>,
    enough: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

/// What the thread has to do with.
struct Watch<OnDeath> {
    guardian: Arc<OwnedFd>,
    /// Readable once nothing is left that would have to go with the guardian.
    enough: Arc<OwnedFd>,
    containment: Containment,
    on_death: OnDeath,
    deadline: watch::Receiver<Option<Instant>>,
}

impl GuardianWatch {
    /// Watches the process that `guardian` describes. When it is gone, calls `on_death`, and kills this
    /// process as soon as [`end`](Self::end) is called, which is to be before `deadline`. No keeper may be
    /// started after `on_death`.
    ///
    /// # Errors
    /// When the process is out of descriptors or threads.
    pub fn start(
        guardian: Arc<OwnedFd>,
        containment: Containment,
        on_death: impl FnOnce() + Send + 'static,
        deadline: watch::Receiver<Option<Instant>>,
    ) -> io::Result<Self> {
        let enough = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = Watch {
            guardian: Arc::clone(&guardian),
            enough: Arc::clone(&enough),
            containment,
            on_death,
            deadline,
        };
        let thread = thread::Builder::new().name("guardian-watch".into()).spawn(move || watch.keep())?;
        Ok(Self { guardian, enough, thread })
    }

    /// Ends the watch: nothing is left that would have to go with the guardian. Returns what describes it;
    /// not at all when it is dead, since this process then ends here.
    pub fn end(self) -> Arc<OwnedFd> {
        // An eventfd takes a one unless it stands at 2^64 - 2 (eventfd(2)), and this is the only one it ever
        // gets.
        let _ = rustix::io::write(&*self.enough, &1_u64.to_ne_bytes());
        // A watch that panicked has nothing left to watch either.
        let _ = self.thread.join();
        self.guardian
    }
}

impl<OnDeath: FnOnce()> Watch<OnDeath> {
    fn keep(self) {
        let mut fds = [PollFd::new(&self.guardian, PollFlags::IN), PollFd::new(&self.enough, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        if fds[0].revents().is_empty() {
            return;
        }
        (self.on_death)();
        self.containment.await_handing_back(&self.enough, &self.deadline);
        self.containment.dissolve();
        // Not `exit`: handlers and destructors could wait for whatever hangs. Ends this process, and with it
        // this thread.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

impl Containment {
    /// Until the main thread has handed back, or its time is over.
    fn await_handing_back(&self, enough: &OwnedFd, deadline: &watch::Receiver<Option<Instant>>) {
        let mut give_up_at = Instant::NEVER;
        loop {
            let now = SystemClock::read();
            // As long as a keeper waits for a process that can't be killed, the lease is renewed: the process
            // may work.
            if give_up_at == Instant::NEVER && !self.has_keeper() {
                give_up_at = now.after(HANDING_BACK);
            }
            // Renewals may still move it. One that comes earlier meanwhile is seen to by the deadman itself.
            let deadline = deadline.borrow().unwrap_or(Instant::NEVER);
            let left = now.until(give_up_at.min(deadline.before(BEFORE_THE_DEADLINE)));
            let (false, Ok(longest)) = (left.is_zero(), Timespec::try_from(left.min(LOOK))) else { return };
            let mut enough = [PollFd::new(enough, PollFlags::IN)];
            // Interrupted: again, with what is left.
            if poll(&mut enough, Some(&longest)).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
    }
}
