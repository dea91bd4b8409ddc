//! [`HookService`]: the hooks of one leadership. The record is released when the on-loss hook has ended.

use super::{
    ElectArgs, OnStart,
    demoter::{Demoter, Hook, KILLED, ToDemoter, kill, start_hook},
};
use crate::{
    announce::{say, say_text},
    exit,
    leadership::{self, Leadership, ToGuardian},
};
use async_trait::async_trait;
use ielections::{Holder, Loss};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::{Alarm, DisplayDuration, Instant, SystemClock};
use vvm_deadman::{Subject, Trigger};
use vvm_host::{
    operate::ResourceLimit,
    status::{HostStatus, Role},
};
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

#[derive(Clone, Debug)]
pub(super) struct HookService {
    pub(super) name: String,
    pub(super) holder: Holder,
    pub(super) withheld: &'static [&'static str],
    pub(super) hooks: Arc<Hooks>,
    pub(super) failed: Arc<OnceLock<HookError>>,
    /// Why the last on-loss hook failed, if it did: the machine may not be demoted.
    pub(super) loss_failed: Arc<Mutex<Option<HookError>>>,
    pub(super) status: Arc<HostStatus>,
}

impl HookService {
    pub(super) fn loss_failure(&self) -> Option<HookError> {
        self.loss_failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs the on-loss hook before the first campaign. If it fails, the machine may still be promoted, and vvm elect
    /// campaigns all the same, as after any on-loss hook that fails.
    pub(super) async fn demote_at_start(&self) {
        let name = &self.name;
        say_text!("{name}: running the on-loss hook: this machine may have led before (--on-start demote)");
        let outcome = self.hooks.lose().await;
        if outcome.is_ok() {
            say_text!("{name}: the on-loss hook has succeeded");
        }
        *self.loss_failed.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
    }

    async fn lose(&self, slot: u32, loss: Option<&Loss>, led: &Result<(), HookError>) {
        let name = &self.name;
        let why = match (led, loss) {
            (Err(failure), _) if *failure != HookError::Overtaken => {
                Some(format!("the on-lead hook {failure}"))
            }
            // The history names a loss in any case.
            (_, Some(_)) => None,
            (_, None) => Some(self.why_stopping()),
        };
        let lost = loss.map(|loss| format!("no longer leading: {loss}"));
        let shown = why.iter().chain(&lost).cloned().collect::<Vec<_>>().join("; ");
        say_text!("{name} slot {slot}: {shown}; running the on-loss hook");
        let outcome = self.hooks.lose().await;
        match &outcome {
            Ok(()) => {
                say_text!("{name} slot {slot}: the on-loss hook has succeeded");
                if led.is_err() {
                    why.into_iter().for_each(|why| self.status.work_ended(why));
                }
            }
            // The thread has printed it.
            Err(failure) => {
                let failure = format!("the on-loss hook {failure}");
                let parts = why.into_iter().chain([failure]).collect::<Vec<_>>();
                self.status.work_ended(parts.join("; "));
            }
        }
        *self.loss_failed.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
    }

    fn why_stopping(&self) -> String {
        match self.status.role() {
            Role::Stopping { why, .. } => why.to_string(),
            role => role.to_string(),
        }
    }
}

#[async_trait]
impl Service<ElectionKey> for HookService {
    fn name(&self) -> &str {
        "hooks"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let leadership = Leadership::new(&self.name, &self.holder, &cx.slot, &cx.standing);
        say_text!("{leadership}");
        say_text!("{} slot {}: running the on-lead hook", self.name, leadership.slot);
        let environment = leadership.environment(std::env::vars_os(), self.withheld);
        let led = tokio::select! {
            biased;
            led = self.hooks.lead(&leadership, environment) => led,
            // The next order kills the hook.
            () = cx.stop.cancelled() => Ok(()),
        };
        Ok(Box::pin(async move {
            match &led {
                Ok(()) => {
                    if !cx.stop.is_cancelled() {
                        say_text!("{} slot {}: the on-lead hook has succeeded", self.name, leadership.slot);
                    }
                    cx.stop.cancelled().await;
                }
                Err(failure) => {
                    let _ = self.failed.set(failure.clone());
                }
            }
            self.lose(leadership.slot, cx.standing.loss(), &led).await;
            Ok(())
        }))
    }
}

#[derive(Debug)]
pub(super) struct Hooks {
    inbox: Arc<Inbox>,
    demoter: Arc<Demoter>,
}

impl Hooks {
    /// Starts the thread. It runs until [`end`](Self::end), and the caller joins it.
    pub(super) fn start(
        args: &ElectArgs,
        holder: &Holder,
        demoter: &Arc<Demoter>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let inbox = Arc::new(Inbox::new()?);
        let demoter = Arc::clone(demoter);
        let hooks = HookThread {
            args: args.clone(),
            inbox: Arc::clone(&inbox),
            demoter: Arc::clone(&demoter),
            leading: (args.on_start == OnStart::Demote).then(|| at_start(args, holder)),
        };
        let thread = thread::Builder::new().name("hooks".into()).spawn(move || hooks.serve())?;
        Ok((Self { inbox, demoter }, thread))
    }

    /// Dropping the future ends the wait; the hook continues.
    pub(super) async fn lead(
        &self,
        leadership: &Leadership,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<(), HookError> {
        self.demoter.report(ToDemoter::Host(ToGuardian::Leading(leadership.into())));
        self.run(Some(environment)).await
    }

    /// Kills an on-lead hook that still runs, and runs the on-loss hook, unless it has run for this leadership. Never
    /// ready once the kill deadline has passed: the process ends then. Dropping the future ends the wait; the hook continues.
    pub(super) async fn lose(&self) -> Result<(), HookError> {
        self.run(None).await
    }

    async fn run(&self, led_in: Option<Vec<(OsString, OsString)>>) -> Result<(), HookError> {
        let (done, outcome) = oneshot::channel();
        self.inbox.order(HookOrder::Run { led_in, done });
        outcome.await.unwrap_or(Err(HookError::Overtaken))
    }

    pub(super) fn end(&self) {
        self.inbox.order(HookOrder::End);
    }
}

/// Returns the environment of the on-loss hook before the first campaign. Which leadership it ends is unknown, so the
/// epoch is smaller than any, and a receiver that compares epochs refuses it.
fn at_start(args: &ElectArgs, holder: &Holder) -> Vec<(OsString, OsString)> {
    let unknown = [args.candidate.name.as_str(), "0", "0", holder.as_str(), &"0".repeat(32)];
    let withheld = vvm_storage::url::credentials(&args.candidate.storage);
    let mut environment = leadership::environment(unknown, std::env::vars_os(), withheld);
    environment.push(("VVM_LEADER_REASON".into(), "start".into()));
    environment
}

struct HookThread {
    args: ElectArgs,
    inbox: Arc<Inbox>,
    demoter: Arc<Demoter>,
    /// The environment of the leadership whose on-loss hook has not run yet; at first, of one before the start.
    leading: Option<Vec<(OsString, OsString)>>,
}

impl HookThread {
    fn serve(mut self) {
        loop {
            if self.inbox.is_overdue(SystemClock::read()) {
                self.die();
            }
            match self.inbox.take() {
                Some(HookOrder::Run { led_in, done }) => {
                    let outcome = match led_in {
                        Some(environment) => {
                            let outcome = self.run(Hook::OnLead, &environment);
                            self.leading = Some(environment);
                            outcome
                        }
                        None => self.lose(),
                    };
                    // A caller that has gone sends another order.
                    let _ = done.send(outcome);
                }
                Some(HookOrder::End) => return,
                None => self.wait(None, true),
            }
        }
    }

    /// Runs the on-loss hook and ends the process: the kill deadline has passed, and another process may lead soon.
    fn die(&mut self) -> ! {
        say!("{}: the kill deadline has passed", self.args.candidate.name);
        // It is printed, and the status is that of the deadline.
        let _failed = self.lose();
        // Unlike `exit`, it runs no handlers, which could wait for a thread that hangs.
        signal_hook::low_level::exit(exit::DEADMAN.into())
    }

    fn lose(&mut self) -> Result<(), HookError> {
        let Some(environment) = self.leading.take() else { return Ok(()) };
        let outcome = self.run(Hook::OnLoss, &environment);
        if let Err(failure) = &outcome {
            say!("{}: the on-loss hook {failure}", self.args.candidate.name);
        }
        outcome
    }

    fn run(&self, hook: Hook, environment: &[(OsString, OsString)]) -> Result<(), HookError> {
        self.demoter.report(ToDemoter::Starts(hook));
        let outcome = self.run_to_end(hook, environment);
        self.demoter.report(ToDemoter::Ended(hook, outcome.is_ok()));
        outcome
    }

    fn run_to_end(&self, hook: Hook, environment: &[(OsString, OsString)]) -> Result<(), HookError> {
        let (line, gives_way) = match hook {
            Hook::OnLead => (&self.args.on_lead, true),
            Hook::OnLoss => (&self.args.on_loss, false),
        };
        let mut child =
            start_hook(line, environment.iter().cloned()).map_err(|cause| HookError::of_system(&cause))?;
        self.demoter.tell_runs(&child);
        let limit = SystemClock::read().after(self.args.hook_timeout);
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(HookError::Failed(status)),
                Ok(None) => {}
                Err(cause) => return Err(HookError::of_system(&cause)),
            }
            let now = SystemClock::read();
            if gives_way && (self.inbox.is_impatient() || self.inbox.is_overdue(now)) {
                self.kill(&mut child);
                return Err(HookError::Overtaken);
            }
            if now >= limit {
                self.kill(&mut child);
                return Err(HookError::TooLong(self.args.hook_timeout));
            }
            self.wait(Some((&child, now.until(limit))), gives_way);
        }
    }

    fn kill(&self, hook: &mut Child) {
        if !kill(hook) {
            say!(
                "{}: a hook was killed, but its process {} has not ended after {}: it hangs in the kernel (state \
                 D), as in a file system whose server does not answer. vvm elect continues without it",
                self.args.candidate.name,
                hook.id(),
                DisplayDuration(KILLED)
            );
        }
    }

    /// Blocks until the end of the child, or its timeout; if it gives way, also until an order or the deadline.
    fn wait(&self, child: Option<(&Child, Duration)>, gives_way: bool) {
        let process =
            child.and_then(|(child, _)| pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok());
        let longest = child.and_then(|(_, left)| Timespec::try_from(left).ok());
        let mut fds = Vec::with_capacity(3);
        if gives_way {
            fds.push(PollFd::from_borrowed_fd(self.inbox.wake.as_fd(), PollFlags::IN));
            fds.push(PollFd::from_borrowed_fd(self.inbox.timer.as_fd(), PollFlags::IN));
        }
        fds.extend(process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
        // After an interruption the caller checks everything, too.
        let _ = poll(&mut fds, longest.as_ref());
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum HookError {
    #[error("could not be started: {}", ResourceLimit::from(*.0))]
    System(Errno),
    #[error("ended with {0}")]
    Failed(ExitStatus),
    #[error("took longer than --hook-timeout {} and was killed", DisplayDuration(*.0))]
    TooLong(Duration),
    #[error("was killed because the leadership ended")]
    Overtaken,
}

impl HookError {
    fn of_system(cause: &io::Error) -> Self {
        Self::System(Errno::from_io_error(cause).unwrap_or(Errno::IO))
    }
}

#[derive(Debug)]
enum HookOrder {
    /// Run the on-lead hook in this environment; without one, the on-loss hook, after a running hook is killed.
    Run {
        led_in: Option<Vec<(OsString, OsString)>>,
        done: oneshot::Sender<Result<(), HookError>>,
    },
    End,
}

#[derive(Debug)]
struct Inbox {
    state: Mutex<HookQueue>,
    wake: OwnedFd,
    timer: Alarm,
}

#[derive(Debug, Default)]
struct HookQueue {
    orders: VecDeque<HookOrder>,
    deadline: Option<Instant>,
}

impl Inbox {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), wake, timer: Alarm::new()? })
    }

    fn order(&self, order: HookOrder) {
        self.state().orders.push_back(order);
        // An eventfd takes a one unless it stands at 2^64 - 2 (eventfd(2)).
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Option<HookOrder> {
        // First: an order that comes after this makes it readable again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.state().orders.pop_front()
    }

    fn is_impatient(&self) -> bool {
        matches!(self.state().orders.front(), Some(HookOrder::Run { led_in: None, .. } | HookOrder::End))
    }

    fn set_deadline(&self, deadline: Option<Instant>) {
        let mut state = self.state();
        self.timer.set(deadline.unwrap_or(Instant::NEVER));
        state.deadline = deadline;
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.state().deadline.is_some_and(|at| now >= at)
    }

    fn state(&self) -> MutexGuard<'_, HookQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands the deadline to the thread, which then runs the on-loss hook and ends the process, and to the demoter. The
/// system's trigger would end the process without the hook. A thread, because the async runtime may hang.
impl Trigger for Hooks {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let earliest = earliest.map(|(at, _)| at);
        self.demoter.report(ToDemoter::Deadline(earliest));
        self.inbox.set_deadline(earliest);
        Ok(())
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_that_cannot_fork_names_the_limit() {
        let text = HookError::of_system(&io::Error::from(Errno::AGAIN)).to_string();
        assert!(text.starts_with("could not be started: ") && text.contains("ulimit -u"), "{text}");
    }
}
