//! [`HookService`]: the hooks of one leadership. The record is released when the on-loss hook has ended.

use super::{
    ElectArgs, OnStart,
    demoter::{Demoter, Hook, KILL_TIMEOUT, ToDemoter, kill, start_hook},
};
use crate::{
    announce::{say, say_text},
    exit,
    leadership::{self, Leadership, ToGuardian},
    runtime,
};
use async_trait::async_trait;
use ielections::{Holder, Loss};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, getpid, pidfd_open},
};
use std::{
    ffi::OsString,
    io,
    process::{Child, ExitStatus},
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock as _, DisplayDuration, Instant, SystemClock};
use vvm_containment::ReadableLink;
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
    pub(super) loss_failed: watch::Sender<Option<HookError>>,
    pub(super) status: Arc<HostStatus>,
    pub(super) host_stop: CancellationToken,
}

impl HookService {
    /// Runs the on-loss hook before the first campaign. If it fails, the machine may still be promoted, and vvm elect
    /// campaigns all the same, as after any on-loss hook that fails.
    pub(super) async fn demote_at_start(&self) {
        let name = &self.name;
        say_text!("{name}: running the on-loss hook: this machine may have led before (--on-start demote)");
        let outcome = self.hooks.lose().await;
        if outcome.is_ok() {
            say_text!("{name}: the on-loss hook has succeeded");
        }
        self.loss_failed.send_replace(outcome.err());
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
            Err(failure) => {
                let failure = format!("the on-loss hook {failure}");
                let parts = why.into_iter().chain([failure]).collect::<Vec<_>>();
                self.status.work_ended(parts.join("; "));
            }
        }
        self.loss_failed.send_replace(outcome.err());
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
            // After a loss or an operator's request, the host would campaign again.
            if led.is_err() && cx.stop.is_cancelled() {
                self.host_stop.cancel();
            }
            Ok(())
        }))
    }
}

#[derive(Debug)]
pub(super) struct Hooks {
    orders: mpsc::UnboundedSender<HookOrder>,
    deadline: watch::Sender<Option<Instant>>,
    demoter: Arc<Demoter>,
}

impl Hooks {
    /// Starts the thread. It runs until [`end`](Self::end), and the caller joins it.
    pub(super) fn start(
        args: &ElectArgs,
        holder: &Holder,
        demoter: &Arc<Demoter>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (orders, received) = mpsc::unbounded_channel();
        let deadline = watch::Sender::new(None);
        let hooks = HookThread {
            args: args.clone(),
            orders: received,
            next: None,
            deadline: deadline.subscribe(),
            clock: SystemClock::start()?,
            demoter: Arc::clone(demoter),
            leading: (args.on_start == OnStart::Demote).then(|| at_start(args, holder)),
            hanging: Vec::new(),
        };
        // Each hook needs a descriptor.
        pidfd_open(getpid(), PidfdFlags::empty()).map_err(|cause| match cause {
            Errno::NOSYS | Errno::PERM => io::Error::other(format!(
                "pidfd_open: {cause}: use Linux 5.3 or later, and no filter that denies this system call"
            )),
            cause => cause.into(),
        })?;
        let runtime = runtime::start()?;
        let serve = move || runtime.block_on(hooks.serve());
        let thread = thread::Builder::new().name("hooks".into()).spawn(serve)?;
        Ok((Self { orders, deadline, demoter: Arc::clone(demoter) }, thread))
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
        let _ = self.orders.send(HookOrder::Run { led_in, done });
        outcome.await.unwrap_or(Err(HookError::Overtaken))
    }

    pub(super) fn end(&self) {
        let _ = self.orders.send(HookOrder::End);
    }
}

/// Returns the environment of the on-loss hook before the first campaign. Which leadership it ends is unknown, so the
/// epoch is smaller than any, and a receiver that compares epochs refuses it.
fn at_start(args: &ElectArgs, holder: &Holder) -> Vec<(OsString, OsString)> {
    let unknown = [args.candidate.name.as_str(), "0", "0", holder.as_str(), &"0".repeat(32)];
    let withheld = args.candidate.withheld();
    let mut environment = leadership::environment(unknown, std::env::vars_os(), withheld);
    environment.push(("VVM_LEADER_REASON".into(), "start".into()));
    environment
}

struct HookThread {
    args: ElectArgs,
    orders: mpsc::UnboundedReceiver<HookOrder>,
    /// One that a hook has given way to.
    next: Option<HookOrder>,
    deadline: watch::Receiver<Option<Instant>>,
    clock: SystemClock,
    demoter: Arc<Demoter>,
    /// The environment of the leadership whose on-loss hook has not run yet; at first, of one before the start.
    leading: Option<Vec<(OsString, OsString)>>,
    /// Killed hooks that have not ended. Printed after the on-loss hook, because a line may hang, too.
    hanging: Vec<u32>,
}

impl HookThread {
    async fn serve(mut self) {
        loop {
            let order = tokio::select! {
                biased;
                () = is_overdue(&mut self.deadline, &self.clock) => self.die().await,
                order = async {
                    match self.next.take() {
                        Some(order) => Some(order),
                        None => self.orders.recv().await,
                    }
                } => order,
            };
            let Some(HookOrder::Run { led_in, done }) = order else { return };
            let outcome = match led_in {
                Some(environment) => {
                    let outcome = self.run(Hook::OnLead, &environment).await;
                    self.leading = Some(environment);
                    outcome
                }
                None => self.lose().await,
            };
            let _ = done.send(outcome);
        }
    }

    /// Runs the on-loss hook and ends the process: the kill deadline has passed, and another process may lead soon.
    async fn die(&mut self) -> ! {
        // Its failure is printed, and the status is that of the deadline.
        let _failed = self.lose().await;
        say!("{}: the kill deadline has passed", self.args.candidate.name);
        // Unlike `exit`, it runs no handlers, which could wait for a thread that hangs.
        signal_hook::low_level::exit(exit::DEADMAN.into())
    }

    async fn lose(&mut self) -> Result<(), HookError> {
        let Some(environment) = self.leading.take() else { return Ok(()) };
        let outcome = self.run(Hook::OnLoss, &environment).await;
        let name = &self.args.candidate.name;
        for hook in self.hanging.drain(..) {
            say!(
                "{name}: a hook was killed, but its process {hook} has not ended after {}: it hangs in the kernel \
                 (state D), as in a file system whose server does not answer. vvm elect continues without it",
                DisplayDuration(KILL_TIMEOUT)
            );
        }
        if let Err(failure) = &outcome {
            say!("{name}: the on-loss hook {failure}");
        }
        outcome
    }

    async fn run(&mut self, hook: Hook, environment: &[(OsString, OsString)]) -> Result<(), HookError> {
        self.demoter.report(ToDemoter::Starts(hook));
        let outcome = self.run_to_end(hook, environment).await;
        self.demoter.report(ToDemoter::Ended(hook, outcome.is_ok()));
        outcome
    }

    /// The on-lead hook gives way to any order, and to the deadline.
    async fn run_to_end(
        &mut self,
        hook: Hook,
        environment: &[(OsString, OsString)],
    ) -> Result<(), HookError> {
        let (line, gives_way) = match hook {
            Hook::OnLead => (&self.args.on_lead, true),
            Hook::OnLoss => (&self.args.on_loss, false),
        };
        let mut child = start_hook(line, environment.iter().cloned()).map_err(HookError::of_system)?;
        self.demoter.tell_runs(&child);
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = match process.map_err(io::Error::from).and_then(ReadableLink::new) {
            Ok(process) => process,
            Err(cause) => {
                self.kill(&mut child);
                return Err(HookError::of_system(cause));
            }
        };
        let limit = self.clock.now().after(self.args.hook_timeout);
        let failure = tokio::select! {
            biased;
            ended = process.find(|| child.try_wait().transpose()) => {
                let status = ended.flatten().map_err(HookError::of_system)?;
                return if status.success() { Ok(()) } else { Err(HookError::Failed(status)) };
            }
            order = self.orders.recv(), if gives_way => {
                self.next = order;
                HookError::Overtaken
            }
            () = is_overdue(&mut self.deadline, &self.clock), if gives_way => HookError::Overtaken,
            () = self.clock.sleep_until(limit) => HookError::TooLong(self.args.hook_timeout),
        };
        self.kill(&mut child);
        Err(failure)
    }

    fn kill(&mut self, hook: &mut Child) {
        if !kill(hook) {
            self.hanging.push(hook.id());
        }
    }
}

async fn is_overdue(deadline: &mut watch::Receiver<Option<Instant>>, clock: &SystemClock) {
    loop {
        let at = deadline.borrow_and_update().unwrap_or(Instant::NEVER);
        tokio::select! {
            biased;
            Ok(()) = deadline.changed() => {}
            () = clock.sleep_until(at) => return,
        }
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
    fn of_system(cause: io::Error) -> Self {
        Self::System(Errno::from_io_error(&cause).unwrap_or(Errno::IO))
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

/// Hands the deadline to the thread, which runs the on-loss hook and ends the process, and then to the demoter, whose
/// report may hang. The system's trigger would run no hook. A thread with its own runtime: the host's may hang, too.
impl Trigger for Hooks {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let earliest = earliest.map(|(at, _)| at);
        self.deadline.send_replace(earliest);
        self.demoter.report(ToDemoter::Deadline(earliest));
        Ok(())
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elect::demoter::tests::while_reports_wait;

    #[test]
    fn hooks_know_a_deadline_while_its_report_to_the_demoter_hangs() {
        while_reports_wait(|demoter| {
            let hooks = Hooks {
                orders: mpsc::unbounded_channel().0,
                deadline: watch::Sender::new(None),
                demoter: Arc::clone(demoter),
            };
            let mut deadline = hooks.deadline.subscribe();
            let subject = Subject { key: "payroll".into(), holder: "here".into(), epoch: 1 };
            let set = move || hooks.set_earliest(Some((Instant::ORIGIN, &subject)));
            let setting = thread::Builder::new().spawn(set).unwrap();
            let known = runtime::start().unwrap().block_on(async {
                let clock = SystemClock::start().unwrap();
                tokio::select! {
                    known = deadline.wait_for(Option::is_some) => known.is_ok(),
                    () = clock.sleep(harness::HANG_LIMIT) => false,
                }
            });
            assert!(known);
            setting
        })
        .join()
        .unwrap()
        .unwrap();
    }

    #[test]
    fn hook_that_cannot_fork_names_the_limit() {
        let text = HookError::of_system(Errno::AGAIN.into()).to_string();
        assert!(text.starts_with("could not be started: ") && text.contains("ulimit -u"), "{text}");
    }
}
