//! The thread that runs the hooks one at a time, even if the rest of the process hangs.

use super::{
    demoter::Demoter,
    hook_error::HookError,
    order::{Inbox, Order},
    to_demoter::{Hook, ToDemoter},
    trigger::HookTrigger,
};
use crate::{announce::say, exit, leadership::Leadership};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::SystemClock;
use vvm_deadman::Trigger;

/// The shell lines of the hooks.
#[derive(Clone, Debug)]
pub(super) struct HookLines {
    pub(super) on_lead: String,
    pub(super) on_loss: String,
}

/// A handle of the thread.
#[derive(Debug)]
pub(super) struct Hooks {
    inbox: Arc<Inbox>,
    demoter: Arc<Demoter>,
}

impl Hooks {
    /// Starts the thread. It runs until [`end`](Self::end), and the caller joins it.
    ///
    /// # Errors
    /// If the process is out of descriptors or threads.
    pub(super) fn start(
        name: String,
        lines: HookLines,
        timeout: Duration,
        demoter: &Arc<Demoter>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let inbox = Arc::new(Inbox::new()?);
        let demoter = Arc::clone(demoter);
        let hooks = HookThread {
            name,
            lines,
            timeout,
            inbox: Arc::clone(&inbox),
            demoter: Arc::clone(&demoter),
            leading: None,
        };
        let thread = thread::Builder::new().name("hooks".into()).spawn(move || hooks.serve())?;
        Ok((Self { inbox, demoter }, thread))
    }

    /// Runs the on-lead hook of `leadership`.
    ///
    /// # Errors
    /// [`HookError`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; the hook continues.
    pub(super) async fn lead(
        &self,
        leadership: &Leadership,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<(), HookError> {
        self.demoter.tell(ToDemoter::Leading(leadership.into()));
        let (done, outcome) = oneshot::channel();
        self.inbox.order(Order::Lead { environment, done });
        outcome.await.unwrap_or(Err(HookError::Overtaken))
    }

    /// Kills an on-lead hook that still runs, and runs the on-loss hook.
    ///
    /// # Errors
    /// [`HookError`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; the hook continues.
    pub(super) async fn lose(&self) -> Result<(), HookError> {
        let (done, outcome) = oneshot::channel();
        self.inbox.order(Order::Lose { done });
        outcome.await.unwrap_or(Err(HookError::Overtaken))
    }

    /// Asks the thread to end.
    pub(super) fn end(&self) {
        self.inbox.order(Order::End);
    }

    /// Returns the trigger of the deadman.
    pub(super) fn trigger(&self) -> Arc<dyn Trigger> {
        Arc::new(HookTrigger { inbox: Arc::clone(&self.inbox), demoter: Arc::clone(&self.demoter) })
    }
}

/// The state of the thread.
struct HookThread {
    name: String,
    lines: HookLines,
    timeout: Duration,
    inbox: Arc<Inbox>,
    demoter: Arc<Demoter>,
    /// The environment of the leadership whose on-loss hook has not run yet.
    leading: Option<Vec<(OsString, OsString)>>,
}

impl HookThread {
    fn serve(mut self) {
        loop {
            if self.inbox.is_overdue(SystemClock::read()) {
                self.die();
            }
            match self.inbox.take() {
                Some(Order::Lead { environment, done }) => {
                    let outcome = self.run(Hook::OnLead, &environment);
                    self.leading = Some(environment);
                    // A caller that has gone sends another order.
                    let _ = done.send(outcome);
                }
                Some(Order::Lose { done }) => {
                    let outcome = self.lose();
                    let _ = done.send(outcome);
                }
                Some(Order::End) => return,
                None => self.wait(None, None),
            }
        }
    }

    /// Runs the on-loss hook and ends the process: the kill deadline has passed, and another process may lead
    /// soon.
    fn die(&mut self) -> ! {
        say!("{}: the kill deadline has passed", self.name);
        // It is printed, and the status is that of the deadline.
        let _failed = self.lose();
        // Unlike `exit`, it runs no handlers, which could wait for a thread that hangs.
        signal_hook::low_level::exit(exit::DEADMAN.into())
    }

    /// Runs the on-loss hook, once for each leadership, and prints how it failed.
    fn lose(&mut self) -> Result<(), HookError> {
        let Some(environment) = self.leading.take() else { return Ok(()) };
        let outcome = self.run(Hook::OnLoss, &environment);
        if let Err(failure) = &outcome {
            say!("{}: the on-loss hook {failure}", self.name);
        }
        outcome
    }

    /// Runs a hook to its end. An on-lead hook is killed when the leadership ends.
    fn run(&self, hook: Hook, environment: &[(OsString, OsString)]) -> Result<(), HookError> {
        self.demoter.tell(ToDemoter::Starts(hook));
        let outcome = self.run_to_end(hook, environment);
        self.demoter.tell(ToDemoter::Ended(hook, outcome.is_ok()));
        outcome
    }

    fn run_to_end(&self, hook: Hook, environment: &[(OsString, OsString)]) -> Result<(), HookError> {
        let (line, gives_way) = match hook {
            Hook::OnLead => (&self.lines.on_lead, true),
            Hook::OnLoss => (&self.lines.on_loss, false),
        };
        let mut command = Command::new("sh");
        command.args(["-c", line]).env_clear().envs(environment.iter().cloned());
        let mut child = command
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|cause| HookError::System(cause.kind()))?;
        self.demoter.tell(ToDemoter::Runs(hook, Pid::from_child(&child)));
        let limit = SystemClock::read().after(self.timeout);
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(HookError::Failed(status)),
                Ok(None) => {}
                Err(cause) => return Err(HookError::System(cause.kind())),
            }
            let now = SystemClock::read();
            if gives_way && (self.inbox.is_impatient() || self.inbox.is_overdue(now)) {
                kill(&mut child);
                return Err(HookError::Overtaken);
            }
            if now >= limit {
                kill(&mut child);
                return Err(HookError::TooLong(self.timeout));
            }
            self.wait(Some((&child, now.until(limit))), Some(gives_way));
        }
    }

    /// Blocks until an order, the deadline, the end of the child, or its timeout.
    fn wait(&self, child: Option<(&Child, Duration)>, gives_way: Option<bool>) {
        let process =
            child.and_then(|(child, _)| pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok());
        let longest = child.and_then(|(_, left)| Timespec::try_from(left).ok());
        let mut fds = Vec::with_capacity(3);
        if gives_way != Some(false) {
            // A hook that does not give way ignores both.
            fds.push(PollFd::from_borrowed_fd(self.inbox.wake.as_fd(), PollFlags::IN));
            fds.push(PollFd::from_borrowed_fd(self.inbox.timer.as_fd(), PollFlags::IN));
        }
        fds.extend(process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
        // After an interruption the caller checks everything, too.
        let _ = poll(&mut fds, longest.as_ref());
    }
}

/// Kills and reaps a hook, with its process group.
fn kill(child: &mut Child) {
    // Fails if it has ended already.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}
