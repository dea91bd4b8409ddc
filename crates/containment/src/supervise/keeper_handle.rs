//! [`KeeperHandle`]: the supervisor's end of its keeper: orders, messages, and the proof of the end. Below it is the
//! process, [`KeeperProcess`]; [`Helpers`] runs the helpers of the command through it. The supervisor reaps this child
//! and no other, so that no library loses the status of its child.

use crate::{
    event::{OnEvent, SupervisionEvent},
    launch::{HelperError, HelperLines},
    link::{Link, LinkMessage, ReadableLink},
    messages::{FromKeeper, Helper, ToKeeper},
    processes::ProcessEnd,
    refusal::NamespaceRefusal,
    rules,
    signals::ForwardedSignal,
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    fmt, io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    pin::Pin,
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// The keeper has ended without the proof. Processes that the command started may still run. A supervisor that holds a
/// lease for the command must not release it now. It has to end, so that its guardian kills those processes (I6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the keeper of the command {0}, so that processes of it may still run")]
pub struct UnprovenKeeperEnd(pub ProcessEnd);

#[derive(Debug)]
pub(crate) struct KeeperHandle {
    process: Arc<dyn KeeperProcess>,
    link_open: bool,
    helpers: Arc<Helpers>,
    on_event: OnEvent,
    /// The keeper kills itself at this deadline, unless it receives a later one.
    deadline: watch::Receiver<Option<Instant>>,
    sent: Option<Instant>,
    in_force: watch::Sender<Option<Instant>>,
    state: KeeperState,
    /// The names of processes that the command left behind, if they are reported.
    left_over: Option<Vec<String>>,
    gone: Option<ProcessEnd>,
}

#[derive(Clone, Copy, Default, Debug)]
struct KeeperState {
    /// Whether processes may run, or have run.
    ready: bool,
    executed: Option<Result<(), NotRunning>>,
    ended: Option<ProcessEnd>,
    kills: bool,
    nothing_left: bool,
}

impl KeeperState {
    /// Whether the command has ended with the keeper. Before `ready`, a signal is a stop, and an exit is a refusal.
    fn ends_with_keeper(self, end: ProcessEnd) -> bool {
        if self.ready { self.nothing_left } else { matches!(end, ProcessEnd::Signalled(_)) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum NotRunning {
    System(Errno),
    Namespace(NamespaceRefusal),
    NotExecuted(Errno),
}

impl KeeperHandle {
    pub(crate) fn new(
        process: Arc<dyn KeeperProcess>,
        helpers: Arc<Helpers>,
        on_event: OnEvent,
        deadline: watch::Receiver<Option<Instant>>,
    ) -> Self {
        let sent = *deadline.borrow();
        Self {
            process,
            link_open: true,
            helpers,
            on_event,
            deadline,
            sent,
            in_force: watch::Sender::new(None),
            state: KeeperState::default(),
            left_over: None,
            gone: None,
        }
    }

    pub(crate) fn in_force(&self) -> watch::Receiver<Option<Instant>> {
        self.in_force.subscribe()
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        *self.in_force.borrow() == self.sent || !self.link_open || self.gone.is_some()
    }

    /// Sends the present deadline. A keeper that hangs dies at the last one that it received (I4).
    pub(crate) fn send_deadline(&mut self) {
        self.sent = *self.deadline.borrow_and_update();
        let _ = self.process.send(&ToKeeper::Deadline(self.sent));
        // Continues a stopped keeper: if the guardian is stopped too, no other process would kill.
        self.process.continues();
    }

    pub(crate) fn pass_on(&self, passed: ForwardedSignal) {
        match self.process.send(&ToKeeper::Signal(passed)) {
            // A keeper that has ended has no command any more.
            Ok(()) | Err(Errno::PIPE) => {}
            Err(refusal) => {
                self.on_event
                    .report(SupervisionEvent::NotPassedOn { signal: passed.signal, cause: refusal.into() });
            }
        }
    }

    /// Orders the keeper to send TERM to the processes that the command left behind. `is_reported`: whether the caller
    /// gets an event about them. A stopped command need not wait for them, so there is no event then.
    pub(crate) fn terminate_rest(&mut self, is_reported: bool) {
        self.left_over = is_reported.then(Vec::new);
        // If the message is lost, `kill` follows after the time to stop.
        let _ = self.process.send(&ToKeeper::TellRest);
    }

    pub(crate) fn kill(&self) {
        let _ = self.process.send(&ToKeeper::Kill);
        // A stopped keeper receives nothing.
        self.process.continues();
    }

    pub(crate) fn kills(&self) -> bool {
        self.state.kills
    }

    /// Kills the keeper itself, and with it the command. Nothing proves then that no other process is left.
    pub(crate) fn give_up(&mut self) {
        self.process.kill();
    }

    pub(crate) fn command_ended(&self) -> Option<ProcessEnd> {
        self.state.ended.or_else(|| self.gone.filter(|end| self.state.ends_with_keeper(*end)))
    }

    /// Returns whether the command was executed. `None` until that is known.
    pub(crate) fn executed(&self) -> Option<Result<(), NotRunning>> {
        // A keeper that ended without a message about it may have executed the command.
        self.state.executed.or_else(|| self.gone.map(|_| Ok(())))
    }

    /// Returns, once the keeper has ended, whether no process is left (I6): it has said so, or has started nothing.
    pub(crate) fn proof(&self) -> Option<Result<(), UnprovenKeeperEnd>> {
        let proven = rules::is_proven(self.state.ready, self.state.nothing_left);
        self.gone.map(|ended| if proven { Ok(()) } else { Err(UnprovenKeeperEnd(ended)) })
    }

    /// Waits for a message or the keeper's end, and forwards the deadline meanwhile. Cancel safe: messages are kept.
    pub(crate) async fn changed(&mut self) {
        let process = Arc::clone(&self.process);
        tokio::select! {
            biased;
            received = process.received(), if self.link_open => match received {
                Ok(received) => self.note(received),
                // The runtime shuts down.
                Err(_) => self.link_open = false,
            },
            Ok(()) = self.deadline.changed() => self.send_deadline(),
            ended = process.ended(), if self.gone.is_none() => {
                // Its last messages arrived before its end.
                while self.link_open && let Some(received) = process.receive() {
                    self.note(received);
                }
                self.gone = Some(ended);
            }
            else => std::future::pending().await,
        }
    }

    fn note(&mut self, received: LinkMessage<FromKeeper>) {
        let message = match received {
            LinkMessage::Message(message, _) => message,
            LinkMessage::End => {
                self.link_open = false;
                return;
            }
        };
        let state = &mut self.state;
        match message {
            FromKeeper::Ready => state.ready = true,
            FromKeeper::Refused(refusal) => state.executed = Some(Err(NotRunning::Namespace(refusal))),
            FromKeeper::NotStarted(errno) => state.executed = Some(Err(NotRunning::System(errno))),
            FromKeeper::NotExecuted(errno) => state.executed = Some(Err(NotRunning::NotExecuted(errno))),
            FromKeeper::Executed => state.executed = Some(Ok(())),
            FromKeeper::Ended(ended) => state.ended = Some(ended),
            FromKeeper::HelperEnded(helper, ended) => self.helpers.has_ended(helper, Ok(ended)),
            FromKeeper::HelperNotStarted(helper, errno) => {
                let refusal = HelperError::System(errno);
                self.helpers.has_ended(helper, Err(refusal));
            }
            FromKeeper::NotPassedOn(signal, errno) => {
                self.on_event.report(SupervisionEvent::NotPassedOn { signal, cause: errno.into() });
            }
            FromKeeper::OutOfReach(processes) => {
                self.on_event.report(SupervisionEvent::OutOfReach(processes.into_iter().flatten().collect()));
            }
            FromKeeper::LeftOver { total, is_last, name } => {
                if let Some(names) = &mut self.left_over {
                    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                    names.push(String::from_utf8_lossy(name).into_owned());
                    if is_last {
                        let names = std::mem::take(names);
                        self.on_event.report(SupervisionEvent::LeftOver { total, names });
                    }
                }
            }
            FromKeeper::InForce(deadline) => {
                self.in_force.send_replace(deadline);
            }
            FromKeeper::Kills => state.kills = true,
            FromKeeper::Gone => state.nothing_left = true,
        }
    }
}

/// A future of [`KeeperProcess`]. May be dropped and called again at will.
pub(crate) type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) trait KeeperProcess: fmt::Debug + Send + Sync {
    fn send(&self, order: &ToKeeper) -> Result<(), Errno>;

    fn receive(&self) -> Option<LinkMessage<FromKeeper>>;

    fn received(&self) -> Waiting<'_, io::Result<LinkMessage<FromKeeper>>>;

    fn continues(&self);

    /// Kills the keeper, which may have ended already.
    fn kill(&self);

    fn ended(&self) -> Waiting<'_, ProcessEnd>;
}

#[derive(Debug)]
pub(crate) struct ChildKeeper {
    child: Mutex<Child>,
    process: Arc<OwnedFd>,
    ends: ReadableLink,
    link: Link<ToKeeper, FromKeeper>,
    readable: ReadableLink,
}

impl ChildKeeper {
    /// Returns the keeper `child`, to which nothing was sent yet. Fails without descriptors: then the keeper is reaped.
    pub(crate) fn new(
        mut child: Child,
        link: Link<ToKeeper, FromKeeper>,
        readable: ReadableLink,
    ) -> io::Result<Self> {
        let opened = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match opened.and_then(|process| Ok((ReadableLink::new(&process)?, Arc::new(process)))) {
            Ok((ends, process)) => Ok(Self { child: Mutex::new(child), process, ends, link, readable }),
            Err(refusal) => Err(refused(&mut child, refusal)),
        }
    }

    pub(crate) fn process(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.process)
    }

    /// Sends the first message. If the system refuses that, the keeper is reaped.
    pub(crate) fn begin(&self, begin: &ToKeeper, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let begun = self.link.begin(begin, descriptors);
        begun.map_err(|refusal| self.with_child(|child| refused(child, refusal)))
    }

    /// Ignores poison, because no code panics while it holds the lock.
    fn with_child<T>(&self, call: impl FnOnce(&mut Child) -> T) -> T {
        call(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Kills and reaps a keeper that has started nothing, and may be gone already.
fn refused(child: &mut Child, refusal: io::Error) -> io::Error {
    let _ = child.kill();
    let _ = child.wait();
    refusal
}

impl KeeperProcess for ChildKeeper {
    fn send(&self, order: &ToKeeper) -> Result<(), Errno> {
        self.link.send(order)
    }

    fn receive(&self) -> Option<LinkMessage<FromKeeper>> {
        self.link.receive()
    }

    fn received(&self) -> Waiting<'_, io::Result<LinkMessage<FromKeeper>>> {
        Box::pin(self.readable.find(|| self.link.receive()))
    }

    fn continues(&self) {
        let _ = pidfd_send_signal(&*self.process, Signal::CONT);
    }

    fn kill(&self) {
        let _ = self.with_child(Child::kill);
    }

    fn ended(&self) -> Waiting<'_, ProcessEnd> {
        Box::pin(async {
            let reap = || self.with_child(|child| child.try_wait().transpose());
            ended(self.ends.find(reap).await.flatten().ok())
        })
    }
}

/// Returns how the keeper ended. Without a status, because other code has reaped it, that is a failure.
fn ended(status: Option<ExitStatus>) -> ProcessEnd {
    let Some(status) = status else { return ProcessEnd::Exited(u8::MAX) };
    match status.signal() {
        Some(signal) => ProcessEnd::Signalled(signal),
        None => ProcessEnd::Exited(status.code().and_then(|code| code.try_into().ok()).unwrap_or(u8::MAX)),
    }
}

/// The helpers of one command.
pub struct Helpers {
    lines: HelperLines,
    keeper: Arc<dyn KeeperProcess>,
    on_event: OnEvent,
    states: [watch::Sender<KeeperProgress>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeeperProgress {
    Idle,
    Running,
    Ended(Result<ProcessEnd, HelperError>),
}

impl Helpers {
    pub(crate) fn new(lines: HelperLines, keeper: Arc<dyn KeeperProcess>, on_event: OnEvent) -> Arc<Self> {
        let states = [watch::Sender::new(KeeperProgress::Idle), watch::Sender::new(KeeperProgress::Idle)];
        Arc::new(Self { lines, keeper, on_event, states })
    }

    /// Returns whether the caller has set a line for `helper`.
    pub fn has(&self, helper: Helper) -> bool {
        self.lines.of(helper).is_some()
    }

    /// Runs a helper, and waits until it has ended. Waits first for an earlier run that was killed and has not ended.
    /// Fails with [`HelperError::TooLong`] at `limit`, and with `System` if the helper or the order to it is refused.
    /// At `limit`, or if the future is dropped, the keeper kills the helper with its process group.
    pub async fn run(
        &self,
        helper: Helper,
        clock: &Arc<dyn Clock>,
        limit: Instant,
    ) -> Result<ProcessEnd, HelperError> {
        let state = self.state(helper);
        let running = async {
            let mut states = state.subscribe();
            // The sender lives as long as `self`.
            let _ = states.wait_for(|state| *state != KeeperProgress::Running).await;
            let _killed = KilledWhenDropped { helpers: self, helper };
            // Before the message, because another thread may receive the answer.
            state.send_replace(KeeperProgress::Running);
            if let Err(errno) = self.keeper.send(&ToKeeper::Helper(helper)) {
                let refusal = HelperError::System(errno);
                state.send_replace(KeeperProgress::Ended(Err(refusal)));
            }
            loop {
                if let KeeperProgress::Ended(ended) = *states.borrow_and_update() {
                    return ended;
                }
                let _ = states.changed().await;
            }
        };
        tokio::select! {
            biased;
            ended = running => ended,
            () = clock.sleep_until(limit) => Err(HelperError::TooLong),
        }
    }

    pub(crate) fn has_ended(&self, helper: Helper, ended: Result<ProcessEnd, HelperError>) {
        self.state(helper).send_replace(KeeperProgress::Ended(ended));
    }

    fn state(&self, helper: Helper) -> &watch::Sender<KeeperProgress> {
        match helper {
            Helper::PreStop => &self.states[0],
            Helper::Check => &self.states[1],
        }
    }
}

struct KilledWhenDropped<'a> {
    helpers: &'a Helpers,
    helper: Helper,
}

impl Drop for KilledWhenDropped<'_> {
    fn drop(&mut self) {
        if *self.helpers.state(self.helper).borrow() == KeeperProgress::Running
            && let Err(refusal) = self.helpers.keeper.send(&ToKeeper::KillHelper(self.helper))
            // A keeper that has ended has no helper any more.
            && refusal != Errno::PIPE
        {
            self.helpers.on_event.report(SupervisionEvent::HelperNotKilled(refusal.into()));
        }
    }
}

impl fmt::Debug for Helpers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Helpers({:?})", self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use std::{path::Path, process::Command};

    #[tokio::test]
    async fn keeper_that_gets_no_first_message_is_reaped() {
        let (link, _far) = link::pair().unwrap();
        let readable = ReadableLink::new(&link).unwrap();
        while link.send(&ToKeeper::Kill).is_ok() {}
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let files = format!("/proc/{}", child.id());
        let keeper = ChildKeeper::new(child, link, readable).unwrap();
        assert!(keeper.begin(&ToKeeper::TryOut, &[]).is_err());
        assert!(!Path::new(&files).exists());
    }

    #[test]
    fn command_ends_with_a_keeper_that_a_signal_ends_before_it_is_ready() {
        let (exited, signalled) = (ProcessEnd::Exited(0), ProcessEnd::Signalled(Signal::TERM.as_raw()));
        let mut keeper = KeeperState::default();
        assert!(keeper.ends_with_keeper(signalled) && !keeper.ends_with_keeper(exited));
        keeper.ready = true;
        assert!(!keeper.ends_with_keeper(signalled), "without the proof");
        keeper.nothing_left = true;
        assert!(keeper.ends_with_keeper(exited));
    }
}
