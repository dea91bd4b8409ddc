//! One simulated process: a VVM with one service, on its own clock.

use crate::{
    executor::{Process, Task},
    faults::FAULTS_END,
    storage::RemoteStorage,
    world::{Signal, World},
};
use async_trait::async_trait;
use fastrand::Rng;
use ielections::{Elections, Entropy, Env, Holder, Loss, Spawn, Ttl};
use std::{
    convert::Infallible,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use testing_time::{DriftingClock, MockWallClock, Rate};
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant};
use vvm_deadman::{Deadman, Subject, Trigger};
use vvm_orch::{Acquisition, BoxError, Problem, RunningVvm, Service, ServiceContext, Vvm, VvmConfig, Work};

/// The properties of one process, drawn from the seed.
#[derive(Clone, Debug)]
pub(crate) struct ProcessProfile {
    pub(crate) slots: u32,
    ttl: Ttl,
    rate: Rate,
    /// The reading of its clock at its start. Clocks of different machines are unrelated.
    reading: Instant,
    wall: Duration,
    service: ServiceProfile,
    seed: u64,
}

/// How its service behaves.
#[derive(Clone, Copy, Debug)]
struct ServiceProfile {
    start_takes: Duration,
    stop_takes: Duration,
    fails_to_start: bool,
    refuses_to_stop: bool,
    ends_after: Option<Duration>,
}

impl ProcessProfile {
    pub(crate) fn draw(rng: &mut Rng, slots: u32) -> Self {
        let ttls = [Duration::from_secs(4), Duration::from_secs(10), Duration::from_secs(20)];
        let ttl = Ttl::new(ttls[rng.usize(..ttls.len())]).unwrap_or_default();
        let up_to = |rng: &mut Rng, most: u64| Duration::from_millis(rng.u64(..most));
        let service = ServiceProfile {
            start_takes: up_to(rng, 3_000),
            stop_takes: up_to(rng, 6_000),
            fails_to_start: rng.u32(..20) == 0,
            refuses_to_stop: rng.u32(..10) == 0,
            ends_after: (rng.u32(..10) == 0).then(|| up_to(rng, 60_000)),
        };
        Self {
            slots,
            ttl,
            // I1 assumes no more: each clock errs by up to 10 %.
            rate: Rate::parts_per_million(rng.u32(900_000..=1_100_000)),
            reading: Instant::from_nanos(rng.u64(..1 << 50)),
            wall: Duration::from_secs(rng.u64(..2_000_000_000)),
            service,
            seed: rng.u64(..),
        }
    }

    /// The same process with a service that starts, stops and runs as it should.
    pub(crate) fn sound(mut self) -> Self {
        self.service.fails_to_start = false;
        self.service.refuses_to_stop = false;
        self.service.ends_after = None;
        self
    }
}

/// Starts `process`. It lives until it crashes, its deadman kills it, or it has shut down after `stop`.
pub(crate) fn start(world: &Arc<World>, process: Process, profile: ProcessProfile, stop: Arc<Notify>) {
    let clock: Arc<dyn Clock> =
        Arc::new(DriftingClock::new(world.clock.clone(), profile.rate, profile.reading));
    world.born(process, Arc::clone(&clock));
    let changed = Arc::new(Notify::new());
    let trigger = SimTrigger {
        world: Arc::clone(world),
        process,
        clock: Arc::clone(&clock),
        changed: Arc::clone(&changed),
    };
    world.spawn(
        Process::WORLD,
        "deadman",
        Box::pin(kill_at_deadline(Arc::clone(world), process, Arc::clone(&clock), changed)),
    );
    let wall = MockWallClock::new();
    wall.set(profile.wall);
    let env = Env {
        clock,
        wall: Arc::new(wall),
        deadman: Deadman::with_trigger(Arc::new(trigger)),
        entropy: Arc::new(SeededEntropy(Mutex::new(Rng::with_seed(profile.seed)))),
        spawn: Arc::new(SimSpawn { world: Arc::clone(world), process }),
    };
    let main = main(Arc::clone(world), process, profile, env, stop);
    world.spawn(process, "main", Box::pin(main));
}

/// Does as a host does: provide, launch, wait for a problem or a signal, shut down, exit.
async fn main(world: Arc<World>, process: Process, profile: ProcessProfile, env: Env, stop: Arc<Notify>) {
    let storage = Arc::new(RemoteStorage { world: Arc::clone(&world), process });
    let elections = Elections::new(storage, env.clone());
    let service =
        SimService { world: Arc::clone(&world), process, profile: profile.service, clock: env.clock.clone() };
    let Ok(holder) = Holder::new("10.0.0.7") else { return };
    let config = VvmConfig::new((1..=profile.slots).collect(), holder, &env);
    let vvm = Vvm::provide(config, elections, vec![Box::new(service)]);
    let running = vvm.launch(profile.ttl, Acquisition::Forever);
    tokio::select! {
        biased;
        () = stop.notified() => world.count(|counts| counts.stops += 1),
        problem = running.problem() => {
            world.note(format_args!("{process} has a problem: {problem:?}"));
            world.count(|counts| counts.problems += 1);
            if let Some(Problem::Lost(Loss::Stolen { by })) = problem {
                world.lost_to(process, by.incarnation());
            }
        }
        never = hints(&world, &running, &*env.clock, Rng::with_seed(profile.seed)) => match never {},
    }
    let outcome = running.shutdown().await;
    world.note(format_args!("{process} has shut down: {outcome:?}"));
    if world.is_working(process) {
        // A service did not stop in time, so the leadership was not handed back. This process lives on as if
        // its exit hung: only the deadman ends it.
        world.count(|counts| counts.refusals += 1);
        return;
    }
    world.state().signals.push(Signal::Ended(process));
}

/// Sends hints, true or false, now and then many at once.
async fn hints(world: &World, running: &RunningVvm<u32>, clock: &dyn Clock, mut rng: Rng) -> Infallible {
    loop {
        clock.sleep(Duration::from_secs(10).mul_f64(rng.f64())).await;
        for _ in 0..if rng.u32(..4) == 0 { 30 } else { 1 } {
            world.count(|counts| counts.hints += 1);
            running.look_now();
            clock.sleep(Duration::from_millis(40).mul_f64(rng.f64())).await;
        }
    }
}

struct SimService {
    world: Arc<World>,
    process: Process,
    profile: ServiceProfile,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Service<u32> for SimService {
    fn name(&self) -> &str {
        "service"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<u32>) -> Result<Work, BoxError> {
        self.world.work_begins(self.process, cx.slot, cx.standing.epoch(), cx.standing.incarnation());
        self.clock.sleep(self.profile.start_takes).await;
        if self.profile.fails_to_start {
            self.world.work_ends(self.process);
            return Err("simulated failure to start".into());
        }
        Ok(Box::pin(async move {
            // Not after the last fault: the end of the run might fall between two leaders.
            let within_faults = |after: &Duration| self.world.clock.now().after(*after) < FAULTS_END;
            let natural_end = match self.profile.ends_after.filter(within_faults) {
                Some(after) => self.clock.sleep(after),
                None => Box::pin(std::future::pending()),
            };
            tokio::select! {
                biased;
                () = cx.stop.cancelled() => {}
                () = natural_end => {}
            }
            if self.profile.refuses_to_stop {
                std::future::pending::<()>().await;
            }
            self.clock.sleep(self.profile.stop_takes).await;
            self.world.work_ends(self.process);
            Ok(())
        }))
    }
}

/// The kernel's timer: fires whether or not the process runs (I4).
async fn kill_at_deadline(world: Arc<World>, process: Process, clock: Arc<dyn Clock>, changed: Arc<Notify>) {
    while world.is_alive(process) {
        let due: Task = match world.deadline(process) {
            Some(deadline) => clock.sleep_until(deadline),
            None => Box::pin(std::future::pending()),
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = due => {
                if world.is_alive(process) && world.deadline(process).is_some_and(|at| at <= clock.now()) {
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
    clock: Arc<dyn Clock>,
    changed: Arc<Notify>,
}

impl Trigger for SimTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.world.deadline_set(self.process, earliest.map(|(at, _)| at));
        self.changed.notify_one();
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

#[derive(Debug)]
struct SimSpawn {
    world: Arc<World>,
    process: Process,
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        self.world.spawn(self.process, name, task);
    }
}

#[derive(Debug)]
struct SeededEntropy(Mutex<Rng>);

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}
