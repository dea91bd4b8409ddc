//! If the guardian dies, everything goes: one thread waits for that, and ends everything by itself.
//!
//! A thread of its own, because the main one may hang in a storage call just then; and not a parent-death signal, because
//! the kernel would end only this process, and what its worker left behind would live on without either of us.
//!
//! When nobody is left, the main thread has a moment to hand the leadership back, which spares the next one the TTL. What
//! is shared by the two threads, and why that is safe:
//!
//! - *Nothing new is started.* The containment is closed before the first one is killed. What the main thread starts just
//!   then is found and killed here, or never told to become anything (`Containment::start`).
//! - *The proof that nobody is left is the main thread's own* (I6). Both threads reap. But only the main one starts
//!   processes, so that when it finds no child, nobody is left and nobody will be: it needs no word from here, and hands
//!   back on the same ground as ever, the end of its supervision. It is woken from here once more, after the last one was
//!   reaped, lest it wait for an end that it can't see any more.
//! - *The deadman stays armed* until that (I4). This thread asks nothing of the main one but to be quick: it kills the
//!   process when its time is over, or shortly before the kill deadline, whatever the main one does.

use crate::{established::Containment, event::OnEvent, sweep::end_all};
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

/// For handing back after the guardian's death: a note in the history and a deletion, tried again once or twice where the
/// network blinks. A storage that takes longer costs the next one what is left of the TTL. Not more, because whoever
/// started the guardian knows nothing of us any more.
const HANDING_BACK: Duration = Duration::from_secs(5);

/// How long before the kill deadline it is given up: after it, there would be last words, which nobody waits for.
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
    on_event: OnEvent,
    on_death: OnDeath,
    deadline: watch::Receiver<Option<Instant>>,
}

impl GuardianWatch {
    /// Watches the process that `guardian` describes. When it is gone, kills every descendant, calls `on_death`, and then
    /// kills this process as soon as [`end`](Self::end) is called, which is to be before `deadline`.
    ///
    /// # Errors
    /// When the process is out of descriptors or threads.
    pub fn start(
        guardian: OwnedFd,
        containment: Containment,
        on_event: OnEvent,
        on_death: impl FnOnce() + Send + 'static,
        deadline: watch::Receiver<Option<Instant>>,
    ) -> io::Result<Self> {
        let guardian = Arc::new(guardian);
        let enough = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = Watch {
            guardian: Arc::clone(&guardian),
            enough: Arc::clone(&enough),
            containment,
            on_event,
            on_death,
            deadline,
        };
        let thread = thread::Builder::new().name("guardian-watch".into()).spawn(move || watch.keep())?;
        Ok(Self { guardian, enough, thread })
    }

    /// Ends the watch: nothing is left that would have to go with the guardian. Returns what describes it; not at all when
    /// it is dead, since this process then ends here.
    pub fn end(self) -> Arc<OwnedFd> {
        // An eventfd takes a one unless it stands at 2^64 - 2 (eventfd(2)), and this is the only one it ever gets.
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
        self.containment.close();
        end_all(&self.containment, drop, |event| self.on_event.report(event));
        // Only now: up to here nothing depends on what other threads do.
        (self.on_death)();
        let give_up_at = SystemClock::read().after(HANDING_BACK);
        self.containment.dissolve();
        await_the_main_thread(&self.enough, &self.deadline, give_up_at);
        // Not `exit`: handlers and destructors could wait for whatever hangs. Ends this process, and with it this thread.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// Until it has handed back, or its time is over.
fn await_the_main_thread(enough: &OwnedFd, deadline: &watch::Receiver<Option<Instant>>, give_up_at: Instant) {
    loop {
        // Renewals may still move it. One that comes earlier meanwhile is seen to by the deadman itself.
        let deadline = deadline.borrow().unwrap_or(Instant::NEVER);
        let left = SystemClock::read().until(give_up_at.min(deadline.before(BEFORE_THE_DEADLINE)));
        let (false, Ok(longest)) = (left.is_zero(), Timespec::try_from(left)) else { return };
        let mut enough = [PollFd::new(enough, PollFlags::IN)];
        // Interrupted: again, with what is left.
        if poll(&mut enough, Some(&longest)).is_ok_and(|ready| ready > 0) {
            return;
        }
    }
}
