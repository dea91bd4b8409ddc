//! The work of one leadership: the command, once or again and again, and what keeps the leadership after it
//! has ended.
//!
//! What lives here: starting a command, and what follows its end. What happens between the two stands in
//! `vvm_containment`; what follows the tenure, in `conclusion`.

mod backoff;

use super::{
    conclusion::{Cause, conclude},
    health::Health,
    surroundings::{Course, Surroundings, WorkEnd, Worked},
};
use crate::{
    announce::say_to_people,
    cli::{
        args::{OnExit, RestartLimit},
        exit,
    },
    contained::NotStarted,
    notes::ToGuardian,
    worker::environment::Leadership,
};
use backoff::Backoff;
use ielections::Standing;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::Instant;
use vvm_containment::{CommandSpec, Controls, Ended, StopTimeouts, Supervised, Supervision, Unproven, spawn};
use vvm_host::status::{Idle, IdleUntil, WhyStopping};
use vvm_orch::{BoxError, ServiceContext};
use vvm_storage::ElectionKey;

/// How long before the kill deadline waiting ends, and killing begins: a tree of fifty processes takes 10 ms
/// to kill and reap on an idle machine; the rest is for a busy one, and for handing back.
const KILLING: Duration = Duration::from_millis(200);

/// Of a short TTL, this part: a third of what services have to stop in after a loss (0.15).
const KILLING_SHARE: u32 = 20;

/// Of the TTL, this part is kept for the command to stop in after a loss, half of what there is then (0.15):
/// `--pre-stop` ends before.
const LEAST_TO_STOP_SHARE: u32 = 13;

/// How long one signal to many processes may take to reach us by way of the guardian, on a busy machine. Only
/// a worker that another process has killed by TERM, INT or HUP is kept waiting for it.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// The work of one leadership.
#[derive(Debug)]
pub(super) struct Tenure {
    surroundings: Arc<Surroundings>,
    course: Arc<Course>,
    leadership: Leadership,
    standing: Standing,
    acquired_at: Instant,
    /// The work is to stop: told from outside, or because the leadership is given up.
    stop: CancellationToken,
    health: Option<Health>,
}

impl Tenure {
    /// Under `leadership`, until it is told to stop.
    pub(super) fn new(
        surroundings: Arc<Surroundings>,
        course: Arc<Course>,
        leadership: Leadership,
        cx: &ServiceContext<ElectionKey>,
    ) -> Self {
        let acquired_at = surroundings.clock.now();
        let health = Health::of(&surroundings.run.work, &surroundings.clock);
        let (standing, stop) = (cx.standing.clone(), cx.stop.child_token());
        Self { surroundings, course, leadership, standing, acquired_at, stop, health }
    }

    /// What a supervision is told from outside, from now on.
    pub(super) fn controls(&self) -> Controls {
        let control = &self.surroundings.control;
        Controls {
            signals: control.signals.subscribe(),
            stop: self.stop.clone(),
            kill: control.kill.clone(),
            deadline: self.surroundings.deadline.clone(),
        }
    }

    /// Starts the command.
    ///
    /// # Errors
    /// When it can't be executed, or the system refuses. Nothing of it runs then.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it has everything killed, and nothing waits for that.
    pub(super) async fn start(&self, controls: Controls) -> Result<Supervision, BoxError> {
        let run = &self.surroundings.run;
        let credentials = vvm_storage::url::credentials(&run.storage);
        let withheld = if run.keep_credentials { &[] } else { credentials };
        let order = CommandSpec {
            command: &run.command,
            environment: self.leadership.environment(std::env::vars_os(), withheld),
            helpers: &run.work.helpers(),
            input: &self.surroundings.input,
            guardian: &self.surroundings.guardian_process,
            group: self.surroundings.terminal_group,
            containment: &self.surroundings.containment,
            deadline: self.surroundings.deadline.clone(),
            on_event: self.surroundings.on_event.clone(),
        };
        let mut starting = spawn(&order).map_err(NotStarted::from)?;
        let timeouts = StopTimeouts {
            pre_stop_timeout: run.work.pre_stop_timeout,
            least_to_stop: run.ttl.get() / LEAST_TO_STOP_SHARE,
            stop_timeout: run.stop_timeout,
            killing: KILLING.min(run.ttl.get() / KILLING_SHARE),
        };
        let executed = tokio::select! {
            biased;
            executed = starting.executed() => executed,
            // Stopping is the same, whether or not it has become the command by now.
            () = self.stop.cancelled() => Ok(()),
        };
        let clock = Arc::clone(&self.surroundings.clock);
        let supervision = Supervision::of(starting, clock, timeouts, controls);
        match executed {
            Ok(()) => Ok(supervision),
            Err(refusal) => {
                self.proven(supervision.kill_at_once().run().await);
                Err(NotStarted::from(refusal).into())
            }
        }
    }

    /// How the command ended, if it is proven that nothing of it is left (I6). Without proof, this process
    /// ends here and hands nothing back: the guardian kills what is left, and the record expires.
    fn proven(&self, supervised: Result<Supervised, Unproven>) -> Supervised {
        supervised.unwrap_or_else(|unproven| {
            let cause = Cause::Unproven(unproven);
            let farewell = conclude(&self.surroundings, &self.course, &cause).farewell;
            self.surroundings.guardian.note(ToGuardian::Farewell(farewell).into());
            // Not `exit` with its handlers, which could wait for whatever hangs.
            signal_hook::low_level::exit(exit::SYSTEM.into())
        })
    }

    /// From the start of the first command until nothing is left to be done under this leadership.
    ///
    /// # Errors
    /// When the command can't be started again.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it has everything killed, and nothing waits for that.
    pub(super) async fn run(self, first: Supervision) -> Result<(), BoxError> {
        let situation = &self.surroundings.situation;
        situation.works();
        let mut work = pin!(self.work(first));
        let ended = tokio::select! {
            biased;
            ended = &mut work => ended,
            () = self.stop.cancelled() => {
                situation.stops_by(&self.standing, self.surroundings.control.why());
                work.await
            }
        };
        // A command may be faster with a signal than we are.
        let control = &self.surroundings.control;
        let why = if control.stop.is_cancelled() { control.why() } else { WhyStopping::WorkEnded };
        situation.stops_by(&self.standing, why);
        ended
    }

    async fn work(&self, first: Supervision) -> Result<(), BoxError> {
        let mut supervision = first;
        let mut backoff = Backoff::of(&self.surroundings.run.work);
        let mut restarts = 0_u32;
        loop {
            let began = self.surroundings.clock.now();
            let last = self.supervise(supervision).await;
            match last.ended {
                Some(Ended::Exited(status)) => self.surroundings.situation.exited(status),
                Some(Ended::Signalled(number)) => self.surroundings.situation.exited(exit::by_signal(number)),
                None => {}
            }
            if last.by_itself && !self.restarts_after(restarts) {
                self.has_worked(last.clone(), WorkEnd::Finished);
                self.hold(&last).await;
                return Ok(());
            }
            if !last.by_itself || self.stop.is_cancelled() {
                self.has_worked(last, WorkEnd::Stopped);
                return Ok(());
            }
            let pause = backoff.after_a_run_of(self.surroundings.clock.now().since(began));
            restarts = restarts.saturating_add(1);
            self.idles(IdleUntil::Restart { number: restarts, limit: self.limit() }, pause, &last);
            if self.is_stopped_within(pause).await {
                self.has_worked(last, WorkEnd::BetweenRuns);
                return Ok(());
            }
            // First, so that no signal is lost that comes while it starts.
            let controls = self.controls();
            self.surroundings.situation.work_ended("the command could not be started again");
            supervision = self.start(controls).await?;
            self.surroundings.situation.works();
        }
    }

    /// Until the last process that the command has started is reaped: a restart finds nothing of it.
    async fn supervise(&self, supervision: Supervision) -> Supervised {
        let mut supervised = self.check(supervision).await;
        if let Some(signal) = supervised.stopped_unasked()
            && self.is_asked_to_stop_soon().await
        {
            supervised.told.push(signal);
        }
        if self.surroundings.control.guardian_died.is_cancelled() {
            // Killed by the thread that watches for that, which may have been faster.
            supervised.by_itself = false;
        }
        supervised
    }

    /// Asks to give up the leadership when the command does not work.
    async fn check(&self, supervision: Supervision) -> Supervised {
        let helpers = supervision.helpers();
        let mut supervised = pin!(async { self.proven(supervision.run().await) });
        let Some(health) = &self.health else { return supervised.await };
        tokio::select! {
            biased;
            supervised = &mut supervised => return supervised,
            // Whether it works is of no interest any more.
            () = self.stop.cancelled() => {}
            unhealthy = health.fails(&helpers, &self.surroundings.situation) => {
                let why = WhyStopping::GivenUp(unhealthy.to_string().into());
                self.surroundings.situation.stops_by(&self.standing, why);
                // The first one stands.
                let _ = self.course.unhealthy.set(unhealthy);
                self.stop.cancel();
            }
        }
        supervised.await
    }

    /// Whether a request to stop has come, or comes so soon that it is the one that the worker has died of.
    async fn is_asked_to_stop_soon(&self) -> bool {
        tokio::select! {
            biased;
            () = self.surroundings.control.stop.cancelled() => true,
            () = self.surroundings.clock.sleep(ON_ITS_WAY) => false,
        }
    }

    fn restarts_after(&self, restarts: u32) -> bool {
        self.surroundings.run.work.on_exit == OnExit::Restart
            && self.limit().is_none_or(|limit| restarts < limit)
    }

    /// How many restarts there may be.
    fn limit(&self) -> Option<u32> {
        match self.surroundings.run.work.restart_limit {
            RestartLimit::Never => None,
            RestartLimit::After(limit) => Some(limit),
        }
    }

    /// Says that the leadership goes without work for a while: it has ended as `last` did.
    fn idles(&self, until: IdleUntil, pause: Duration, last: &Supervised) {
        let Leadership { name, slot, .. } = &self.leadership;
        let ended = last.ended.map(|ended| ended.to_string()).unwrap_or_default().into();
        let idle = Idle { until, pause, ended };
        say_to_people!("{name} slot {slot}: {idle}");
        self.surroundings.situation.idles(idle);
    }

    /// Keeps the leadership for as long as it was to be held at least.
    async fn hold(&self, last: &Supervised) {
        let until = self.acquired_at.after(self.surroundings.run.work.hold_at_least);
        let left = self.surroundings.clock.now().until(until);
        if left.is_zero() {
            return;
        }
        self.idles(IdleUntil::Release, left, last);
        self.is_stopped_within(left).await;
    }

    async fn is_stopped_within(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => true,
            () = self.surroundings.clock.sleep(pause) => false,
        }
    }

    fn has_worked(&self, last: Supervised, end: WorkEnd) {
        let how = last
            .ended
            .map_or_else(|| "the command was stopped".to_owned(), |ended| format!("the command {ended}"));
        self.surroundings.situation.work_ended(how);
        // Set once: a course has one tenure.
        let _ = self.course.worked.set(Worked { last, end });
    }
}
