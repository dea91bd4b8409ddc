//! [`CommandRunner`]: runs the command under one leadership: once or again and again, with its checks, until
//! no process of it is left. Only then the record is released (I6).

use super::{
    args::{OnExit, RunArgs, WorkArgs},
    control::{Control, GuardianSilent},
    health,
    outcome::{Cause, FinishedWork, LeadershipRun, WorkEnd},
};
use crate::{
    announce::say_text,
    contained::{NotStarted, describe},
    exit,
    leadership::Leadership,
    once::OnceArgs,
};
use async_trait::async_trait;
use ielections::{Holder, Standing};
use rustix::process::Pid;
use std::{ffi::OsString, os::fd::OwnedFd, pin::pin, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, DisplayDuration, Instant};
use vvm_containment::{
    CommandSpec, Containment, Controls, Guardian, OnEvent, ProcessEnd, Starting, StopTimeouts, Supervised,
    Supervision, UnprovenKeeperEnd, spawn,
};
use vvm_host::{
    StopRequested,
    status::{HostStatus, PendingRestart, Role, WhyStopping},
};
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// How long after the end of a command a stop request still counts as its cause. A terminal or a service manager signals
/// the command and `vvm` one after the other, and the command may have ended before the host hears of it, through the
/// guardian and on a busy machine.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

pub(super) type Variables = [(OsString, OsString)];

#[derive(Clone, Debug)]
pub(super) struct CommandRunner {
    pub(super) args: Arc<RunArgs>,
    pub(super) once: Option<Arc<OnceArgs>>,
    pub(super) starter: Arc<CommandStarter>,
    pub(super) control: Arc<Control>,
    pub(super) status: Arc<HostStatus>,
    pub(super) holder: Holder,
    pub(super) guardian: Guardian,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) run: Arc<LeadershipRun>,
}

#[async_trait]
impl Service<ElectionKey> for CommandRunner {
    fn name(&self) -> &str {
        "command"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let status = Arc::clone(&self.status);
        self.begin(cx).await.inspect_err(|cause| {
            if !cause.is::<StopRequested>() {
                status.work_ended(format!("command not started: {cause}"));
            }
        })
    }
}

impl CommandRunner {
    pub(super) fn election_name(&self) -> &str {
        &self.args.candidate.name
    }

    async fn begin(self, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let leadership = self.leadership(&cx.slot, &cx.standing);
        let work = LeadershipWork {
            leadership: leadership.clone(),
            standing: cx.standing.clone(),
            stop: cx.stop.child_token(),
            requested: cx.stop.clone(),
            runner: self,
        };
        // First, so that no signal is lost while the command starts.
        let controls = work.controls();
        work.runner.deadline_is_in_force(&cx.stop).await?;
        work.runner.leads(work.runner.run.leadership.get_or_init(|| leadership));
        if let Some(once) = work.runner.once.clone() {
            return Ok(Box::pin(work.run_once(once)));
        }
        let supervision = work.start(controls, &[]).await?;
        Ok(Box::pin(async move { work.run(supervision).await }))
    }

    /// Waits until the guardian's own timer is set to our deadline or a later one, or to an earlier one of a successor
    /// that was named meanwhile. Without it, no process would kill what the command leaves behind if guardian and host
    /// were stopped together. Gives up after TTL/4.
    pub(super) async fn deadline_is_in_force(&self, stop: &CancellationToken) -> Result<(), BoxError> {
        let deadline = *self.starter.deadline.borrow();
        let mut in_force = self.control.in_force.subscribe();
        tokio::select! {
            biased;
            _ = in_force.wait_for(|at| {
                at.is_some() && *at >= deadline.min(*self.starter.deadline.borrow())
            }) => Ok(()),
            () = stop.cancelled() => Err(StopRequested.into()),
            () = self.clock.sleep(self.args.candidate.ttl.get() / 4) => Err(GuardianSilent.into()),
        }
    }

    /// Returns how the command ended, with proof that no process of it is left (I6). Without, it ends this process.
    pub(super) fn proven(
        &self,
        supervised: Result<Supervised, UnprovenKeeperEnd>,
        leadership: Option<&Leadership>,
    ) -> Supervised {
        // It confirms nothing any more, and enforces nothing.
        self.starter.keeper.send_replace(None);
        supervised.unwrap_or_else(|unproven| {
            let run = LeadershipRun::default();
            if let Some(leadership) = leadership {
                run.leadership.get_or_init(|| leadership.clone());
            }
            self.end_process(&run, &Cause::Unproven(unproven))
        })
    }
}

#[derive(Debug)]
pub(super) struct LeadershipWork {
    pub(super) runner: CommandRunner,
    pub(super) leadership: Leadership,
    pub(super) standing: Standing,
    /// Cancelled by a stop request, a loss, or when the leadership is given up.
    pub(super) stop: CancellationToken,
    /// The same, except for failed checks.
    pub(super) requested: CancellationToken,
}

impl LeadershipWork {
    pub(super) fn controls(&self) -> Controls {
        let control = &self.runner.control;
        Controls {
            signals: control.signals.subscribe(),
            stop: self.stop.clone(),
            stop_signal: self.runner.args.stop_signal,
            kill: control.kill.clone(),
            deadline: self.runner.starter.deadline.clone(),
        }
    }

    /// Starts the command, with these variables, too. After a failure, no process of it runs. Not cancel safe: dropped, it
    /// has everything killed, and nothing waits for that.
    pub(super) async fn start(
        &self,
        controls: Controls,
        variables: &Variables,
    ) -> Result<Supervision, BoxError> {
        let starter = &self.runner.starter;
        let starting = starter.start(&self.leadership, variables)?;
        let clock = Arc::clone(&self.runner.clock);
        let mut supervision = Supervision::new(starting, clock, starter.timeouts(), controls);
        starter.keeper.send_replace(Some(supervision.in_force()));
        match supervision.executed().await {
            Ok(()) => Ok(supervision),
            Err(refusal) => {
                self.runner.proven(supervision.kill_at_once().run().await, Some(&self.leadership));
                Err(NotStarted::from(refusal).into())
            }
        }
    }

    /// Runs from the start of the first command to the end of the last. Not cancel safe: as [`start`](Self::start).
    pub(super) async fn run(&self, first: Supervision) -> Result<(), BoxError> {
        let CommandRunner { status, control, .. } = &self.runner;
        status.works();
        let mut work = pin!(self.work(first));
        let ended = tokio::select! {
            biased;
            ended = &mut work => ended,
            () = self.stop.cancelled() => {
                status.stops_by(&self.standing, control.why());
                self.announce_stop();
                work.await
            }
        };
        let is_finished = self.runner.run.worked.get().is_some_and(|worked| worked.end == WorkEnd::Finished);
        let why =
            if is_finished || !control.stop.is_cancelled() { WhyStopping::WorkEnded } else { control.why() };
        status.stops_by(&self.standing, why);
        ended
    }

    async fn work(&self, first: Supervision) -> Result<(), BoxError> {
        let CommandRunner { args, status, clock, .. } = &self.runner;
        let limit = args.work.restart_limit.0;
        let restarts_after = |restarts: u32| {
            args.work.on_exit == OnExit::Restart && limit.is_none_or(|limit| restarts < limit)
        };
        let mut supervision = first;
        let mut backoff = Backoff::from_args(&args.work);
        let mut restarts = 0_u32;
        loop {
            let began = clock.now();
            let last = self.supervise(supervision).await;
            match last.ended {
                Some(ProcessEnd::Exited(status)) => self.runner.status.exited(status),
                Some(ProcessEnd::Signalled(number)) => self.runner.status.exited(exit::by_signal(number)),
                None => {}
            }
            let asked = args
                .stop_signal
                .is_some_and(|signal| last.ended == Some(ProcessEnd::Signalled(signal.as_raw())));
            if last.by_itself && (asked || !restarts_after(restarts)) {
                self.has_worked(last, WorkEnd::Finished);
                return Ok(());
            }
            if !last.by_itself || self.stop.is_cancelled() {
                self.has_worked(last, WorkEnd::Stopped);
                return Ok(());
            }
            let now = clock.now();
            let pause = backoff.after_a_run_of(now.since(began));
            let restart_at = now.after(pause);
            // Within the pause, so that no restart is later.
            let settled_at = restart_at.min(asked_by(&last));
            let is_asked = tokio::select! {
                biased;
                () = self.stop.cancelled() => true,
                () = clock.sleep_until(settled_at) => false,
            };
            if is_asked {
                self.has_worked(Supervised { by_itself: false, ..last }, WorkEnd::Stopped);
                return Ok(());
            }
            restarts = restarts.saturating_add(1);
            let ended = last.ended.map(|ended| ended.to_string()).unwrap_or_default().into();
            self.idles(PendingRestart { number: restarts, limit, pause, ended });
            let stopped = tokio::select! {
                biased;
                () = self.stop.cancelled() => true,
                () = clock.sleep_until(restart_at) => false,
            };
            if stopped {
                self.has_worked(last, WorkEnd::BetweenRuns);
                return Ok(());
            }
            let controls = self.controls();
            status.work_ended("the command could not be started again");
            supervision = self.start(controls, &[]).await?;
            status.works();
        }
    }

    /// Supervises one run of the command until its last process is reaped, and decides whether it ended by itself: no
    /// stop was asked for before its end, nor within [`ON_ITS_WAY`] after it.
    ///
    /// This waits for a late request only if it would do harm to be wrong: before the mark of a period, and to know of
    /// which signal `vvm` dies. A restart has its pause for that. Nothing waits before any other release, so that no
    /// fail-over is slower; for those, [`cause`](super::cause) decides once the record is released.
    async fn supervise(&self, supervision: Supervision) -> Supervised {
        let clock = &self.runner.clock;
        let mut asked = pin!(async {
            self.is_asked().await;
            clock.now()
        });
        let mut asked_at = Instant::NEVER;
        let mut checked = pin!(self.check(supervision));
        let mut supervised = loop {
            tokio::select! {
                biased;
                at = &mut asked, if asked_at == Instant::NEVER => asked_at = at,
                supervised = &mut checked => break supervised,
            }
        };
        let stop_signal = self.runner.args.stop_signal;
        let may_be_marked = self.runner.once.is_some() && supervised.ended == Some(ProcessEnd::Exited(0));
        let waits =
            (supervised.by_itself && may_be_marked) || supervised.stopped_unasked(stop_signal).is_some();
        if waits && asked_at == Instant::NEVER {
            tokio::select! {
                biased;
                at = asked => asked_at = at,
                () = clock.sleep_until(asked_by(&supervised)) => {}
            }
        }
        if asked_at <= asked_by(&supervised) {
            supervised.by_itself = false;
            supervised.told.extend(supervised.stopped_unasked(stop_signal));
        }
        if self.runner.control.guardian_died.is_cancelled() {
            // The thread that watches the guardian may have killed it first.
            supervised.by_itself = false;
        }
        supervised
    }

    async fn check(&self, supervision: Supervision) -> Supervised {
        let (helpers, ended) = (supervision.helpers(), supervision.ended());
        let supervising = async { self.runner.proven(supervision.run().await, Some(&self.leadership)) };
        let mut supervised = pin!(supervising);
        let CommandRunner { args, status, clock, .. } = &self.runner;
        let Some(check) = &args.work.check else { return supervised.await };
        tokio::select! {
            biased;
            supervised = &mut supervised => return supervised,
            () = self.stop.cancelled() => {}
            () = ended.cancelled() => {}
            unhealthy = health::fails_checks(check, &args.work, &helpers, (status, clock)) => {
                let why = WhyStopping::GivenUp(unhealthy.to_string().into());
                status.stops_by(&self.standing, why);
                let _ = self.runner.run.unhealthy.set(unhealthy);
                self.stop.cancel();
            }
        }
        supervised.await
    }

    async fn is_asked(&self) {
        let stop = &self.runner.control.stop;
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.requested.cancelled() => {
                // A loss asks for nothing: what has succeeded before has succeeded.
                if self.standing.loss().is_some() {
                    stop.cancelled().await;
                }
            }
        }
    }

    fn announce_stop(&self) {
        let CommandRunner { args, control, status, .. } = &self.runner;
        let Leadership { name, slot, .. } = &self.leadership;
        if let Role::Stopping { why: why @ WhyStopping::Lost(_), .. } = status.role() {
            // The line about the end comes after the last calls to the storage, which may hang.
            say_text!("{name} slot {slot}: stopping the command: {why}");
            return;
        }
        let is_killed = control.guardian_died.is_cancelled() || control.guardian_lapsed.is_cancelled();
        if is_killed || !control.stop.is_cancelled() {
            return;
        }
        let pre_stop = args.work.pre_stop.as_ref().map_or(Duration::ZERO, |_| args.work.pre_stop_timeout);
        let longest = DisplayDuration(args.stop_timeout.saturating_add(pre_stop));
        say_text!("{name} slot {slot}: stopping: up to {longest}; a second signal kills");
    }

    pub(super) fn idles(&self, idle: PendingRestart) {
        let Leadership { name, slot, .. } = &self.leadership;
        say_text!("{name} slot {slot}: {idle}");
        self.runner.status.idles(idle);
    }

    fn has_worked(&self, last: Supervised, end: WorkEnd) {
        self.runner.status.work_ended(describe(&last));
        let _ = self.runner.run.worked.set(FinishedWork { last, end });
    }
}

/// Returns until when a stop request counts as the cause of this end.
pub(super) fn asked_by(last: &Supervised) -> Instant {
    last.ended_at.map_or(Instant::ORIGIN, |at| at.after(ON_ITS_WAY))
}

/// Waiting ends and killing begins this long before the kill deadline. Killing and reaping fifty processes
/// takes 10 ms on an idle machine; the rest is for a busy one, and for the release.
const KILLING: Duration = Duration::from_millis(200);

/// At most this part of a short TTL: a third of the 0.15 TTL in which services must stop after a loss.
const KILLING_SHARE: u32 = 20;

/// `--pre-stop` leaves the command this part of the TTL to stop in: half of the 0.15 TTL after a loss.
const LEAST_TO_STOP_SHARE: u32 = 13;

#[derive(Debug)]
pub(super) struct CommandStarter {
    pub(super) run: Arc<RunArgs>,
    pub(super) input: OwnedFd,
    pub(super) terminal_group: Option<Pid>,
    pub(super) containment: Containment,
    pub(super) guardian_process: Arc<OwnedFd>,
    pub(super) on_event: OnEvent,
    pub(super) deadline: watch::Receiver<Option<Instant>>,
    /// The confirmations of the keeper that runs, for a leader with a successor (N2).
    pub(super) keeper: watch::Sender<Option<watch::Receiver<Option<Instant>>>>,
}

impl CommandStarter {
    pub(super) fn start(
        &self,
        leadership: &Leadership,
        variables: &Variables,
    ) -> Result<Starting, NotStarted> {
        let mut environment = leadership.environment(std::env::vars_os(), self.run.candidate.withheld());
        environment.extend_from_slice(variables);
        self.start_in(environment)
    }

    /// Starts the command with this environment. After a failure, no process of it runs.
    pub(super) fn start_in(&self, environment: Vec<(OsString, OsString)>) -> Result<Starting, NotStarted> {
        let run = &self.run;
        let order = CommandSpec {
            command: &run.command,
            environment,
            helpers: &run.work.helpers(),
            input: &self.input,
            guardian: &self.guardian_process,
            group: self.terminal_group,
            containment: &self.containment,
            deadline: self.deadline.clone(),
            killing: self.timeouts().killing,
            on_event: self.on_event.clone(),
        };
        // Before it reads the deadline, so that none which is tightened meanwhile counts as in force without it.
        self.keeper.send_replace(Some(watch::Sender::new(None).subscribe()));
        Ok(spawn(&order).inspect_err(|_| drop(self.keeper.send_replace(None)))?)
    }

    pub(super) fn timeouts(&self) -> StopTimeouts {
        let candidate = &self.run.candidate;
        // While a successor is named, the support period stands for the TTL.
        let ttl = candidate.successor.map_or(candidate.ttl.get(), |_| candidate.support);
        StopTimeouts {
            pre_stop_timeout: self.run.work.pre_stop_timeout,
            least_to_stop: ttl / LEAST_TO_STOP_SHARE,
            stop_timeout: self.run.stop_timeout,
            killing: KILLING.min(ttl / KILLING_SHARE),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn from_args(work: &WorkArgs) -> Self {
        Self::new(work.restart_backoff, work.restart_backoff_max)
    }

    fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first }
    }

    pub(super) fn after_a_run_of(&mut self, length: Duration) -> Duration {
        if length > self.longest {
            self.next = self.first;
        }
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_longest_and_a_long_run_resets_it() {
        let secs = Duration::from_secs;
        let mut backoff = Backoff::new(secs(1), secs(5));
        let waits = [0, 0, 5, 0].map(|length| backoff.after_a_run_of(secs(length)));
        assert_eq!(waits, [1, 2, 4, 5].map(secs));
        assert_eq!(backoff.after_a_run_of(secs(6)), secs(1));
        assert_eq!(backoff.after_a_run_of(secs(0)), secs(2));
    }

    #[test]
    fn first_delay_is_at_most_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(9), Duration::from_secs(2));
        assert_eq!(backoff.after_a_run_of(Duration::ZERO), Duration::from_secs(2));
    }
}
