//! The supervisor's hold on a keeper: what it orders, what it hears, and the proof that nothing is left.
//!
//! The supervisor reaps this one child and no other, so that no status of another library's child is ever
//! taken.

use super::alongside::Helpers;
use crate::{
    auxiliary::HelperError,
    event::{Event, OnEvent},
    keeper::message::{FromKeeper, ToKeeper},
    link::{Heard, Link},
    namespace_refusal::Refusal,
    processes::Ended,
    readable::Readable,
    signals::Passed,
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::{Child, ExitStatus},
    sync::Arc,
};
use tokio::sync::watch;
use vvm_clock::Instant;

/// The keeper has ended and did not say that nothing is left. What the command has started may still run.
///
/// A supervisor that holds something on behalf of the command, as a lease, must not give it up now: it has to
/// end, so that its guardian kills what is left (I6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the keeper of the command {0}, so that processes of it may still run")]
pub struct Unproven(pub Ended);

/// A hold on a keeper.
#[derive(Debug)]
pub(crate) struct KeeperHandle {
    child: Child,
    process: Arc<OwnedFd>,
    ends: Readable,
    link: Arc<Link<ToKeeper, FromKeeper>>,
    hears: Readable,
    link_open: bool,
    helpers: Arc<Helpers>,
    on_event: OnEvent,
    /// The keeper kills itself at this deadline, if it is not told of a later one.
    deadline: watch::Receiver<Option<Instant>>,
    heard: Said,
    /// How the keeper itself ended.
    gone: Option<Ended>,
}

/// What a keeper has said.
#[derive(Clone, Copy, Default, Debug)]
struct Said {
    /// Whether processes may run, or have run.
    ready: bool,
    executed: Option<Result<(), NotRunning>>,
    ended: Option<Ended>,
    kills: bool,
    nothing_left: bool,
}

/// Why there is no command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotRunning {
    System(Errno),
    Namespace(Refusal),
    NotExecuted(Errno),
}

impl KeeperHandle {
    /// Of the keeper that `child` is, which has not been told anything yet.
    ///
    /// # Errors
    /// When the process is out of descriptors. The keeper has ended then, and is reaped.
    pub(crate) fn of(
        mut child: Child,
        link: Arc<Link<ToKeeper, FromKeeper>>,
        hears: Readable,
        helpers: Arc<Helpers>,
        on_event: OnEvent,
        deadline: watch::Receiver<Option<Instant>>,
    ) -> io::Result<Self> {
        let opened = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match opened.and_then(|process| Ok((Readable::of(&process)?, Arc::new(process)))) {
            Ok((ends, process)) => {
                let (link_open, heard, gone) = (true, Said::default(), None);
                Ok(Self {
                    child,
                    process,
                    ends,
                    link,
                    hears,
                    link_open,
                    helpers,
                    on_event,
                    deadline,
                    heard,
                    gone,
                })
            }
            Err(refusal) => {
                // It has started nothing, and nothing is lost if it is gone already.
                let _ = child.kill();
                let _ = child.wait();
                Err(refusal)
            }
        }
    }

    /// A descriptor of its process.
    pub(crate) fn process(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.process)
    }

    /// Passes a signal on to a command that has not ended.
    pub(crate) fn pass_on(&self, passed: Passed) {
        match self.link.say(&ToKeeper::Signal(passed)) {
            // A keeper that is gone has no command any more.
            Ok(()) | Err(Errno::PIPE) => {}
            Err(refusal) => {
                self.on_event.report(Event::NotPassedOn { signal: passed.signal, cause: refusal.into() });
            }
        }
    }

    /// Has what the command left behind told to stop.
    pub(crate) fn tell_rest(&self) {
        // A keeper that does not hear it is gone, or will be told to kill.
        let _ = self.link.say(&ToKeeper::TellRest);
    }

    /// Has everything killed.
    pub(crate) fn kill(&self) {
        let _ = self.link.say(&ToKeeper::Kill);
        // One that is stopped hears nothing. (Of a namespace, the process outside, which needs to hear
        // nothing.)
        let _ = pidfd_send_signal(&self.process, Signal::CONT);
    }

    /// Whether it has heard that it is to kill.
    pub(crate) fn kills(&self) -> bool {
        self.heard.kills
    }

    /// Kills the keeper itself, and with it the command. There is no proof then that nothing else is left.
    pub(crate) fn give_up(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
    }

    /// How the command has ended, as far as was heard: by itself, or with process 1 of its namespace.
    pub(crate) fn command_ended(&self) -> Option<Ended> {
        let with_keeper = self.gone.filter(|_| self.heard.ready && self.heard.nothing_left);
        self.heard.ended.or(with_keeper)
    }

    /// Whether the command was executed, as far as was heard.
    pub(crate) fn executed(&self) -> Option<Result<(), NotRunning>> {
        // A keeper that has ended says no more.
        self.heard.executed.or_else(|| self.gone.map(|_| Ok(())))
    }

    /// Once the keeper has ended: whether that proves that nothing is left (I6). It does when the keeper has
    /// said so, and when it had nothing started.
    pub(crate) fn proof(&self) -> Option<Result<(), Unproven>> {
        let proven = self.heard.nothing_left || !self.heard.ready;
        self.gone.map(|ended| if proven { Ok(()) } else { Err(Unproven(ended)) })
    }

    /// Waits until there is something new, and passes the deadline on meanwhile.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will: what is heard is kept.
    pub(crate) async fn stirs(&mut self) {
        let Self { child, process, ends, link, hears, deadline, .. } = self;
        tokio::select! {
            biased;
            heard = hears.find(|| link.hear()), if self.link_open => match heard {
                Ok(heard) => self.note(heard),
                // Only where the runtime shuts down, which waits for nothing.
                Err(_) => self.link_open = false,
            },
            // One that does not hear it hangs, and is killed at the deadline that it heard last (I4).
            Ok(()) = deadline.changed() => {
                let _ = link.say(&ToKeeper::Deadline(*deadline.borrow_and_update()));
                // One that was stopped goes on: with a guardian that is stopped too, nothing else would kill.
                let _ = pidfd_send_signal(&*process, Signal::CONT);
            }
            // Only this child is reaped.
            status = ends.find(|| child.try_wait().transpose()), if self.gone.is_none() => {
                // Its last words came before its end.
                while self.link_open && let Some(heard) = self.link.hear() {
                    self.note(heard);
                }
                self.gone = Some(ended(status.and_then(|status| status).ok()));
            }
            else => std::future::pending().await,
        }
    }

    fn note(&mut self, heard: Heard<FromKeeper>) {
        let message = match heard {
            Heard::Message(message, _) => message,
            Heard::End => {
                self.link_open = false;
                return;
            }
        };
        let said = &mut self.heard;
        match message {
            FromKeeper::Ready => said.ready = true,
            FromKeeper::Refused(refusal) => said.executed = Some(Err(NotRunning::Namespace(refusal))),
            FromKeeper::NotStarted(errno) => said.executed = Some(Err(NotRunning::System(errno))),
            FromKeeper::NotExecuted(errno) => said.executed = Some(Err(NotRunning::NotExecuted(errno))),
            FromKeeper::Executed => said.executed = Some(Ok(())),
            FromKeeper::Ended(ended) => said.ended = Some(ended),
            FromKeeper::HelperEnded(helper, ended) => self.helpers.has_ended(helper, Ok(ended)),
            FromKeeper::HelperNotStarted(helper, errno) => {
                let refusal = HelperError::System(io::Error::from(errno).kind());
                self.helpers.has_ended(helper, Err(refusal));
            }
            FromKeeper::NotPassedOn(signal, errno) => {
                self.on_event.report(Event::NotPassedOn { signal, cause: errno.into() });
            }
            FromKeeper::OutOfReach(processes) => {
                self.on_event.report(Event::OutOfReach(processes.into_iter().flatten().collect()));
            }
            FromKeeper::Kills => said.kills = true,
            FromKeeper::Gone => said.nothing_left = true,
        }
    }
}

/// A status that was taken by a stranger is none that proves anything.
fn ended(status: Option<ExitStatus>) -> Ended {
    let signal = status.and_then(|status| status.signal());
    signal.map_or_else(
        || Ended::Exited(status.and_then(|status| u8::try_from(status.code()?).ok()).unwrap_or(u8::MAX)),
        Ended::Signalled,
    )
}
