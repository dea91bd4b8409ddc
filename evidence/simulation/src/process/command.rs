//! [`Command`]: work that is a supervised command, as that of `vvm run`. It may leave processes behind, and
//! its keeper may die.
//!
//! The supervision is the real one. The keeper and the processes are simulated, and tasks of the world: they
//! go on while the host is paused, and die with it.

use super::{ServiceProfile, Started};
use crate::{
    clock::{Process, SimClock, Task},
    faults::FAULTS_END,
    world::World,
};
use async_trait::async_trait;
use fastrand::Rng;
use ielections::Incarnation;
use std::{fmt, io, sync::Arc, time::Duration};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_containment::{Controls, Ended, Order, SimulatedKeeper, StopTimeouts, Supervised};
use vvm_deadman::{Deadman, Subject, Trigger};
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

pub(super) struct Command {
    world: Arc<World>,
    process: Process,
    clock: Arc<dyn Clock>,
    deadline: watch::Receiver<Option<Instant>>,
    service: ServiceProfile,
    seed: u64,
}

impl Command {
    pub(super) fn of(started: &Started) -> Self {
        let Started { world, process, profile, env, deadline, .. } = started;
        Self {
            world: Arc::clone(world),
            process: *process,
            clock: Arc::clone(&env.clock),
            deadline: deadline.clone(),
            service: profile.service,
            seed: profile.seed,
        }
    }
}

#[async_trait]
impl Service<ElectionKey> for Command {
    fn name(&self) -> &str {
        "command"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let supervised = self.begin(&cx, None);
        Ok(Box::pin(async move {
            supervised.await;
            Ok(())
        }))
    }
}

impl Command {
    /// Starts a command, and returns how it ends, once nothing of it is left. It does `job` if there is one.
    pub(super) fn begin(
        &self,
        cx: &ServiceContext<ElectionKey>,
        job: Option<Job>,
    ) -> impl Future<Output = Supervised> + Send + use<> {
        let (world, process) = (Arc::clone(&self.world), self.process);
        let (epoch, incarnation) = (cx.standing.epoch(), cx.standing.incarnation());
        world.work_begins(process, cx.slot.slot.get().get(), epoch, incarnation);
        let (signals, received) = broadcast::channel(1);
        let controls = Controls {
            signals: received,
            stop: cx.stop.clone(),
            stop_signal: None,
            kill: CancellationToken::new(),
            deadline: self.deadline.clone(),
        };
        let timeouts = StopTimeouts {
            pre_stop_timeout: Duration::ZERO,
            least_to_stop: Duration::ZERO,
            stop_timeout: Duration::from_secs(3),
            killing: Duration::from_millis(500),
        };
        let (keeper, supervision) = SimulatedKeeper::start(Arc::clone(&self.clock), timeouts, controls);
        let rng = Rng::with_seed(self.seed ^ epoch.get());
        let service = self.service;
        let family = Family { world: Arc::clone(&world), process, incarnation, service, job, rng };
        world.spawn(Process::WORLD, "keeper", Box::pin(family.live(keeper)));
        async move {
            let _signals = signals;
            match supervision.run().await {
                Ok(supervised) => supervised,
                Err(_) => {
                    // As `vvm run`: without proof it ends, and its guardian kills what is left.
                    world.count(|counts| counts.unproven += 1);
                    world.died(process, "ends without proof that its command has");
                    std::future::pending().await
                }
            }
        }
    }
}

/// What a command does that ends by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) takes: Duration,
    pub(super) succeeds: bool,
}

/// The processes of one command.
struct Family {
    world: Arc<World>,
    process: Process,
    incarnation: Incarnation,
    service: ServiceProfile,
    job: Option<Job>,
    rng: Rng,
}

impl Family {
    /// Plays the keeper and its processes until none is left.
    async fn live(mut self, mut keeper: SimulatedKeeper) {
        let now = self.world.clock.now();
        let within_faults = |at: &Instant| *at < FAULTS_END;
        // When the command ends, when the processes that it leaves behind do, and when the keeper dies.
        let mut ends_at = match self.job {
            Some(job) => Some(now.after(job.takes)),
            None => self.service.ends_after.map(|after| now.after(after)).filter(within_faults),
        };
        let mut rest_ends_at = None;
        let dies_at = self.service.panics_after.map(|after| now.after(after)).filter(within_faults);
        let (mut is_running, mut is_stopped) = (true, false);
        let leaves_processes = self.rng.bool();
        loop {
            if is_running && ends_at.is_some_and(|at| at <= self.world.clock.now()) {
                is_running = false;
                // A job that is stopped ends with 0, too.
                let succeeds = self.job.is_none_or(|job| job.succeeds);
                self.world.job_ends(self.incarnation, succeeds && !is_stopped);
                keeper.command_ended(Ended::Exited(if succeeds || is_stopped { 0 } else { 3 }));
                let stays = self.service.stop_takes.mul_f64(self.rng.f64());
                let rest = if leaves_processes { Duration::from_secs(60) + stays } else { Duration::ZERO };
                // An order to kill may have come before.
                let rest_ends = self.world.clock.now().after(rest);
                rest_ends_at = Some(rest_ends_at.map_or(rest_ends, |at: Instant| at.min(rest_ends)));
                self.world.count(|counts| counts.left_behind += u64::from(leaves_processes));
            }
            if !is_running && rest_ends_at.is_some_and(|at| at <= self.world.clock.now()) {
                self.world.work_ends(self.process, self.incarnation);
                keeper.ends_without_processes();
                return;
            }
            if dies_at.is_some_and(|at| at <= self.world.clock.now()) {
                // What is left lives until the guardian kills it, with the supervisor.
                self.world.count(|counts| counts.keepers_died += 1);
                keeper.dies();
                return;
            }
            let next = if is_running { ends_at } else { rest_ends_at };
            let next = [next, dies_at].into_iter().flatten().min().unwrap_or(Instant::NEVER);
            let order = tokio::select! {
                biased;
                order = keeper.order() => order,
                () = self.world.clock.sleep_until(next) => continue,
            };
            let soon = self.world.clock.now().after(Duration::from_millis(self.rng.u64(1..300)));
            let after_term = self.world.clock.now().after(self.service.stop_takes);
            let sooner =
                |at: &mut Option<Instant>, end: Instant| *at = Some(at.map_or(end, |at| at.min(end)));
            is_stopped |= matches!(order, Some(Order::Signal(_) | Order::Kill));
            match order {
                // The supervision was dropped: its process is dead, and everything of it.
                None => return,
                Some(Order::Signal(_)) if self.service.refuses_to_stop => {}
                Some(Order::Signal(_)) => sooner(&mut ends_at, after_term),
                // Its processes die with the simulated supervisor, which the deadline ends. One confirmation in
                // four is lost, so the supervision asks again.
                Some(Order::Deadline(deadline)) => {
                    if self.rng.u8(..4) > 0 {
                        keeper.in_force(deadline);
                    }
                }
                Some(Order::TellRest) => sooner(&mut rest_ends_at, after_term),
                Some(Order::Kill) => {
                    keeper.kills();
                    sooner(&mut ends_at, soon);
                    sooner(&mut rest_ends_at, soon);
                }
                Some(Order::End) => {
                    keeper.dies();
                    return;
                }
            }
        }
    }
}

/// Starts the timer of `process`. Returns the deadman, and its deadline as it moves.
pub(super) fn start(
    world: &Arc<World>,
    process: Process,
    clock: &SimClock,
) -> (Deadman, watch::Receiver<Option<Instant>>) {
    let changed = Arc::new(Notify::new());
    let timer = kill_at_deadline(Arc::clone(world), process, clock.clone(), Arc::clone(&changed));
    world.spawn(Process::WORLD, "deadman", Box::pin(timer));
    let (moves, deadline) = watch::channel(None);
    let trigger = SimTrigger { world: Arc::clone(world), process, clock: clock.clone(), changed, moves };
    (Deadman::with_trigger(Arc::new(trigger)), deadline)
}

async fn kill_at_deadline(world: Arc<World>, process: Process, clock: SimClock, changed: Arc<Notify>) {
    while world.is_alive(process) {
        let due: Task = match world.deadline(process) {
            Some(deadline) => clock.sleep_until(deadline),
            None => Box::pin(std::future::pending()),
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = due => {
                if world.is_alive(process) && world.deadline(process).is_some_and(|at| at <= clock.peek()) {
                    world.count(|counts| counts.kills += 1);
                    world.died(process, "is killed at its deadline");
                }
            }
        }
    }
}

struct SimTrigger {
    world: Arc<World>,
    process: Process,
    clock: SimClock,
    changed: Arc<Notify>,
    moves: watch::Sender<Option<Instant>>,
}

impl Trigger for SimTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.world.deadline_set(self.process, earliest.map(|(at, _)| at));
        self.changed.notify_one();
        self.moves.send_replace(earliest.map(|(at, _)| at));
        Ok(())
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl fmt::Debug for SimTrigger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "deadman of {}", self.process)
    }
}
