//! [`Supervisor`]: what a supervisor gets from its guardian, the link to it, and what happens when the guardian
//! has died ([`GuardianWatch`]), is stopped (as by Ctrl-Z) or hangs ([`lapsed`]).

use crate::{
    containment::Containment,
    control_group::ControlGroup,
    launch::{self, Accepted, StageError},
    link::{Link, LinkMessage},
    messages::{DeathNotice, ToGuardian, ToSupervisor},
    processes::ForeignProcFs,
};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    process::{Pid, Signal, getpid, kill_process},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant, SystemClock};
use vvm_deadman::{Subject, Trigger};

/// What a supervisor needs to start commands. Its guardian passes it on.
#[derive(Debug)]
pub struct Supervisor {
    /// The link to the guardian.
    pub guardian: Guardian,
    /// A descriptor of the guardian's process, readable once it has ended.
    pub guardian_process: Arc<OwnedFd>,
    /// The command's standard input.
    pub input: OwnedFd,
    /// The process group for the command to share with the guardian; none without a terminal.
    pub terminal_group: Option<Pid>,
    /// The containment that the guardian has established.
    pub containment: Containment,
}

/// Why this process can't be a supervisor.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// No guardian started this process, the guardian has ended, or the system refuses a descriptor.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// There is no `/proc` to find processes in.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
}

impl Supervisor {
    /// Accepts the link from the guardian. Standard input is empty afterwards. Names the process after its program and
    /// stage. Must be called in `main`, while the process has a single thread. Fails for a reason of [`AcceptError`].
    pub fn accept() -> Result<Self, AcceptError> {
        let Accepted { link, first, descriptors } = launch::accept::<ToGuardian, ToSupervisor>()?;
        let mut descriptors = descriptors.into_iter();
        let (ToSupervisor::Begin { terminal_group, level }, Some(input), Some(guardian_process)) =
            (first, descriptors.next(), descriptors.next())
        else {
            return Err(StageError::NotAStage.into());
        };
        let group = descriptors.next().map(ControlGroup::from_folder).transpose();
        let containment = Containment::from_guardian(level, group.map_err(StageError::System)?)?;
        let guardian = Guardian(Arc::new(link));
        let guardian_process = Arc::new(guardian_process);
        Ok(Self { guardian, guardian_process, input, terminal_group, containment })
    }
}

/// The link to the guardian.
#[derive(Clone, Debug)]
pub struct Guardian(Arc<Link<ToGuardian, ToSupervisor>>);

impl Guardian {
    /// Sends a note to the guardian's caller. Never blocks. A note is lost if the guardian lags far behind, or is gone.
    pub fn note(&self, note: DeathNotice) {
        let _ = self.0.send(&ToGuardian::Note(note));
    }

    /// Tells the guardian that this process has nothing left to do and ends now. If a thread of it hangs in
    /// the kernel, the guardian leaves it behind after a few seconds, unless a kill deadline is armed (I6).
    pub fn finished(&self) {
        let _ = self.0.send(&ToGuardian::Finished);
    }

    fn deadline(&self, deadline: Option<vvm_clock::Instant>) {
        let _ = self.0.send(&ToGuardian::Deadline(deadline));
    }

    /// Returns the guardian's next message, if there is one. Never blocks.
    pub fn receive(&self) -> Option<LinkMessage<ToSupervisor>> {
        self.0.receive()
    }
}

/// Readable once the guardian has sent a message, or is gone.
impl AsFd for Guardian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sets the system's timers, and forwards the deadline to the guardian and to receivers.
#[derive(Debug)]
pub struct GuardedTrigger {
    system: Arc<dyn Trigger>,
    guardian: Guardian,
    deadline: watch::Sender<Option<Instant>>,
}

impl GuardedTrigger {
    /// Returns a trigger that calls `system` first, and forwards only what that has accepted.
    pub fn over(system: Arc<dyn Trigger>, guardian: Guardian) -> Self {
        Self { system, guardian, deadline: watch::Sender::new(None) }
    }

    /// Returns the earliest deadline, as it moves.
    pub fn deadline(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.subscribe()
    }
}

impl Trigger for GuardedTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.system.set_earliest(earliest)?;
        let deadline = earliest.map(|(at, _)| at);
        // If the link is full, the guardian keeps its previous deadline. If that is earlier, the guardian counts as
        // gone once it has passed. If it is later, the system's timers and the keeper still act at the new one (I4).
        self.guardian.deadline(deadline);
        self.deadline.send_replace(deadline);
        Ok(())
    }

    fn now(&self) -> Instant {
        self.system.now()
    }
}

/// How long the process may hand back after the guardian's death and the command's end: time for a history entry and a
/// deletion, with one or two retries. With a slower storage, the next leader waits for the rest of the TTL. It is no
/// longer, because the process that started the guardian does not know of this one.
const HANDING_BACK: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(20);

/// How long before the kill deadline the thread stops waiting: it then ends this process before the deadman does.
const BEFORE_THE_DEADLINE: Duration = vvm_deadman::SECOND_LAYER_BEHIND.saturating_mul(2);

/// Ends the supervisor after its guardian has died. The keeper kills the command. A thread of its own, because the main
/// thread may hang in a storage call. It gives the main thread a limited time to hand back a lease after the proof
/// (I6), and disarms no deadline (I4).
#[derive(Debug)]
pub struct GuardianWatch {
    guardian: Arc<OwnedFd>,
    done: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

struct GuardianWatchTask<OnDeath> {
    guardian: Arc<OwnedFd>,
    done: Arc<OwnedFd>,
    containment: Containment,
    on_death: OnDeath,
    deadline: watch::Receiver<Option<Instant>>,
}

impl GuardianWatch {
    /// Watches the process of the descriptor `guardian`. When it ends, calls `on_death`. Then kills this process once
    /// [`end`](Self::end) is called, at the latest 5 s after the last keeper's end, or shortly before `deadline`. Start
    /// no keeper after `on_death`. Fails if the process is out of threads or descriptors.
    pub fn start(
        guardian: Arc<OwnedFd>,
        containment: Containment,
        on_death: impl FnOnce() + Send + 'static,
        deadline: watch::Receiver<Option<Instant>>,
    ) -> io::Result<Self> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = GuardianWatchTask {
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

impl<OnDeath: FnOnce()> GuardianWatchTask<OnDeath> {
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
    fn await_handing_back(&self, done: &OwnedFd, deadline: &watch::Receiver<Option<Instant>>) {
        let mut give_up_at = Instant::NEVER;
        loop {
            let now = SystemClock::read();
            // While a keeper waits for a process that can't be killed, the lease is renewed: that process may work.
            if give_up_at == Instant::NEVER && !self.has_keeper() {
                give_up_at = now.after(HANDING_BACK);
            }
            // Renewals may still move the deadline later. If a loss moves it earlier, the deadman acts.
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

/// The time for reading a confirmation that has arrived already.
const NOTICING: Duration = Duration::from_millis(10);

/// Waits until the guardian confirms that no deadline is set, which is the last message about a leadership. Counts
/// confirmations since `in_force` was subscribed to. May be dropped and called again at will.
pub async fn listens_again(mut in_force: watch::Receiver<Option<Instant>>) {
    while in_force.changed().await.is_ok() && in_force.borrow_and_update().is_some() {}
}

/// Waits until the deadline that the guardian confirmed last has passed. The guardian would not clean up after this
/// process then, so this process must not go on. May be dropped and called again at will.
pub async fn lapsed(mut in_force: watch::Receiver<Option<Instant>>, clock: &Arc<dyn Clock>) {
    loop {
        let confirmed = in_force.borrow_and_update().unwrap_or(Instant::NEVER);
        tokio::select! {
            biased;
            Ok(()) = in_force.changed() => {}
            () = clock.sleep_until(confirmed.after(NOTICING)) => return,
        }
    }
}
