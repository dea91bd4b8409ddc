//! One simulated process: a VVM with one service, on a clock of its own, and everything that happens to it.

use crate::{
    executor::{Process, Task},
    storage::Remote,
    world::{Order, World},
};
use async_trait::async_trait;
use fastrand::Rng;
use ielections::{Elections, Entropy, Env, Holder, Spawn, Ttl};
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
use vvm_orch::{Acquisition, BoxError, RunningVvm, Service, ServiceContext, Vvm, VvmConfig, Work};

/// What one process is, drawn from the seed.
#[derive(Clone, Debug)]
pub(crate) struct Nature {
    pub(crate) slots: u32,
    ttl: Ttl,
    rate: Rate,
    /// What its clock shows when it starts: clocks of different machines have nothing to do with each other.
    reading: Instant,
    wall: Duration,
    service: Temper,
    seed: u64,
}

/// How its service behaves.
#[derive(Clone, Copy, Debug)]
struct Temper {
    start_takes: Duration,
    stop_takes: Duration,
    fails_to_start: bool,
    refuses_to_stop: bool,
    ends_after: Option<Duration>,
}

impl Nature {
    pub(crate) fn draw(rng: &mut Rng, slots: u32) -> Self {
        let ttls = [Duration::from_secs(4), Duration::from_secs(10), Duration::from_secs(20)];
        let ttl = Ttl::new(ttls[rng.usize(..ttls.len())]).unwrap_or_default();
        let up_to = |rng: &mut Rng, most: u64| Duration::from_millis(rng.u64(..most));
        let service = Temper {
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

    /// The nature of a process in calm weather: nothing about its service is odd any more.
    pub(crate) fn calm(mut self) -> Self {
        self.service.fails_to_start = false;
        self.service.refuses_to_stop = false;
        self.service.ends_after = None;
        self
    }
}

/// Starts `process`. It lives until it is crashed, killed by its deadman, or has shut down after `stop` rang.
pub(crate) fn start(world: &Arc<World>, process: Process, nature: Nature, stop: Arc<Notify>) {
    let clock: Arc<dyn Clock> =
        Arc::new(DriftingClock::new(world.clock.clone(), nature.rate, nature.reading));
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
    wall.set(nature.wall);
    let env = Env {
        clock,
        wall: Arc::new(wall),
        deadman: Deadman::with_trigger(Arc::new(trigger)),
        entropy: Arc::new(SeededEntropy(Mutex::new(Rng::with_seed(nature.seed)))),
        spawn: Arc::new(SimSpawn { world: Arc::clone(world), process }),
    };
    let main = main(Arc::clone(world), process, nature, env, stop);
    world.spawn(process, "main", Box::pin(main));
}

/// What a host does: provide, launch, wait for a problem or a signal, shut down, exit.
async fn main(world: Arc<World>, process: Process, nature: Nature, env: Env, stop: Arc<Notify>) {
    let storage = Arc::new(Remote { world: Arc::clone(&world), process });
    let elections = Elections::new(storage, env.clone());
    let service =
        SimService { world: Arc::clone(&world), process, temper: nature.service, clock: env.clock.clone() };
    let Ok(holder) = Holder::new("10.0.0.7") else { return };
    let config = VvmConfig::new((1..=nature.slots).collect(), holder, &env);
    let vvm = Vvm::provide(config, elections, vec![Box::new(service)]);
    let running = vvm.launch(nature.ttl, Acquisition::Forever);
    tokio::select! {
        biased;
        () = stop.notified() => world.count(|counts| counts.stops += 1),
        problem = running.problem() => {
            world.note(format_args!("{process} has a problem: {problem:?}"));
            world.count(|counts| counts.problems += 1);
        }
        never = hints(&world, &running, &*env.clock, Rng::with_seed(nature.seed)) => match never {},
    }
    let outcome = running.shutdown().await;
    world.note(format_args!("{process} has shut down: {outcome:?}"));
    if world.is_working(process) {
        // A service did not stop in time. The leadership was not handed back, and this process goes on as one
        // does whose exit hangs: the deadman is all that is left.
        world.count(|counts| counts.refusals += 1);
        return;
    }
    world.state().orders.push(Order::Ended(process));
}

/// Neighbours say that something has changed, whether it has or not, now and then by the dozen.
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
    temper: Temper,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Service<u32> for SimService {
    fn name(&self) -> &str {
        "service"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<u32>) -> Result<Work, BoxError> {
        self.world.work_begins(self.process, cx.slot, cx.standing.epoch(), cx.standing.incarnation());
        self.clock.sleep(self.temper.start_takes).await;
        if self.temper.fails_to_start {
            self.world.work_ends(self.process);
            return Err("simulated failure to start".into());
        }
        Ok(Box::pin(async move {
            let natural_end = match self.temper.ends_after {
                Some(after) => self.clock.sleep(after),
                None => Box::pin(std::future::pending()),
            };
            tokio::select! {
                biased;
                () = cx.stop.cancelled() => {}
                () = natural_end => {}
            }
            if self.temper.refuses_to_stop {
                std::future::pending::<()>().await;
            }
            self.clock.sleep(self.temper.stop_takes).await;
            self.world.work_ends(self.process);
            Ok(())
        }))
    }
}

/// The kernel's timer: acts on its own, whatever the process does or doesn't (I4).
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
