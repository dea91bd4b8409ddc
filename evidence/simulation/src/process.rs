//! One simulated process on its own clock: a VVM, a host, or a program with several leaderships.

mod command;
mod guardian;
mod once;
mod service;

use crate::{
    clock::{Drift, Process, SimClock, Task},
    storage::RemoteStorage,
    world::{Signal, World},
};
use command::Command;
use fastrand::Rng;
use guardian::send_ticket;
use ielections::{Elections, Entropy, Env, Holder, Loss, Spawn, Ttl};
use service::Worker;
use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use testing_time::MockClock;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant, WallClock};
use vvm_host::{Ended, Host, HostSettings, Next};
use vvm_orch::{AcquireTimeout, Problem, RunningVvm, Service, Vvm, VvmConfig};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// The name for which all processes campaign.
pub(crate) const NAME: &str = "sim";

/// A process that was started.
struct Started {
    world: Arc<World>,
    process: Process,
    profile: ProcessProfile,
    env: Env,
    storage: Arc<ElectionsTtlStorage>,
    stop: Arc<Notify>,
    /// The deadline of its deadman, as it moves.
    deadline: watch::Receiver<Option<Instant>>,
}

/// Returns the storage as `process` reaches it.
pub(crate) fn storage_of(world: &Arc<World>, process: Process) -> ElectionsTtlStorage {
    ElectionsTtlStorage::new(remote_storage(world, process))
}

fn remote_storage(world: &Arc<World>, process: Process) -> Arc<RemoteStorage> {
    Arc::new(RemoteStorage { world: Arc::clone(world), process })
}

/// Returns the slots of the name.
pub(crate) fn slots(count: NonZeroU32) -> Vec<ElectionKey> {
    let cluster = ClusterName::from(NAME);
    SlotNumber::all(count).map(|slot| ElectionKey { cluster: cluster.clone(), slot }).collect()
}

/// Starts `process`. It lives until it crashes, its deadman kills it, or it has shut down after `stop`.
pub(crate) fn start(world: &Arc<World>, process: Process, profile: ProcessProfile, stop: Arc<Notify>) {
    let clock = profile.clock.clone();
    world.born(process, clock.clone(), profile.kind != Kind::Vvm);
    let wall = SimWall { began: profile.wall, since: world.clock.now(), time: world.clock.clone() };
    let (deadman, deadline) = command::start(world, process, &clock);
    let env = Env {
        clock: Arc::new(clock.clone()),
        wall: Arc::new(wall),
        deadman,
        entropy: Arc::new(SeededEntropy(Mutex::new(Rng::with_seed(profile.seed)))),
        spawn: Arc::new(SimSpawn { world: Arc::clone(world), process }),
    };
    let storage = Arc::new(storage_of(world, process));
    let started = Started { world: Arc::clone(world), process, profile, env, storage, stop, deadline };
    guardian::start(&started);
    let main: Task = match started.profile.kind {
        Kind::Vvm => Box::pin(started.run_to_exit(run)),
        Kind::Host => Box::pin(started.run_to_exit(run_host)),
        Kind::Many => Box::pin(started.run_to_exit(service::run)),
        Kind::Once => Box::pin(started.run_to_exit(once::run)),
    };
    world.spawn(process, "main", main);
}

impl Started {
    /// Runs `main`, and exits.
    async fn run_to_exit(self, main: impl AsyncFn(&Self)) {
        main(&self).await;
        let Self { world, process, .. } = self;
        world.farewell(process);
        world.note(format_args!("{process} has shut down"));
        if world.is_working(process) || world.deadline(process).is_some() {
            // A service panicked or did not stop in time, so the leadership was not handed back. This process
            // lives on as if its exit hung: only the deadman ends it.
            world.count(|counts| counts.refusals += 1);
            return;
        }
        world.state().signals.push(Signal::Ended(process));
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

/// A wall clock that runs at the right rate, from whatever it shows at first.
#[derive(Debug)]
struct SimWall {
    began: Option<Duration>,
    since: Instant,
    time: MockClock,
}

impl WallClock for SimWall {
    fn since_unix_epoch(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began + self.time.now().since(self.since))
    }
}

#[derive(Debug)]
struct SeededEntropy(Mutex<Rng>);

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}

async fn run(started: &Started) {
    let Started { world, process, profile, env, storage, stop, .. } = started;
    let elections = Elections::new(Arc::clone(storage) as _, env.clone());
    let Ok(holder) = Holder::new("10.0.0.7") else { return };
    let config = VvmConfig::new(slots(profile.slots), holder, env);
    let worker = Worker::of(started).that_tells_its_guardian();
    let vvm = Vvm::provide(config, elections, vec![Box::new(worker)]);
    let running = vvm.launch(profile.ttl, AcquireTimeout::Forever);
    tokio::select! {
        biased;
        () = stop.notified() => world.count(|counts| counts.stops += 1),
        problem = running.problem() => {
            world.note(format_args!("{process} has a problem: {problem:?}"));
            world.count(|counts| counts.problems += 1);
            if let Some(Problem::Lost(Loss::Stolen { by })) = problem {
                world.lost_to(*process, by.incarnation());
            }
        }
        never = hints(world, &running, &*env.clock, Rng::with_seed(profile.seed)) => match never {},
    }
    let outcome = running.shutdown().await;
    world.note(format_args!("{process}: {outcome:?}"));
}

/// Sends hints, true or false, now and then many at once.
async fn hints(
    world: &World,
    running: &RunningVvm<ElectionKey>,
    clock: &dyn Clock,
    mut rng: Rng,
) -> Infallible {
    loop {
        clock.sleep(Duration::from_secs(10).mul_f64(rng.f64())).await;
        for _ in 0..if rng.u32(..4) == 0 { 30 } else { 1 } {
            world.count(|counts| counts.hints += 1);
            running.look_now();
            clock.sleep(Duration::from_millis(40).mul_f64(rng.f64())).await;
        }
    }
}

/// Returns the host of a process, which reports its claims to its guardian.
fn host_of(started: &Started) -> Option<Host> {
    let Started { world, process, profile, env, .. } = started;
    let mut settings = HostSettings::new("simulated", NAME);
    settings.slots = profile.slots;
    settings.ttl = profile.ttl;
    settings.holder = Holder::new("10.0.0.9").ok();
    let mut host = Host::on_storage(settings, env.clone(), remote_storage(world, *process)).ok()?;
    let (told, claimant) = (Arc::clone(world), *process);
    host.report_claims(move |claim| send_ticket(&told, claimant, claim));
    Some(host)
}

/// Stops the host when the process is asked to stop.
async fn stops(started: &Started, host: CancellationToken) -> Infallible {
    started.stop.notified().await;
    started.world.count(|counts| counts.stops += 1);
    host.cancel();
    std::future::pending().await
}

/// Runs a host, which campaigns again after a loss and heeds pauses.
async fn run_host(started: &Started) {
    let Started { world, process, .. } = started;
    let Some(host) = host_of(started) else { return };
    let stops = stops(started, host.stop());
    let services = || {
        let work: Box<dyn Service<_>> = match started.profile.service.is_command {
            true => Box::new(Command::of(started)),
            false => Box::new(Worker::of(started)),
        };
        vec![work]
    };
    let runs = host.run_then(services, |ended| {
        let problem = match ended {
            Ended::Problem(problem) => problem,
            _ => return Next::Stop,
        };
        world.note(format_args!("{process} has a problem: {problem:?}"));
        world.count(|counts| counts.problems += 1);
        match problem {
            Problem::Lost(Loss::Stolen { by }) => {
                world.lost_to(*process, by.incarnation());
                Next::CampaignAfter(Duration::ZERO)
            }
            Problem::Lost(_) => Next::CampaignAfter(Duration::ZERO),
            _ => Next::Stop,
        }
    });
    tokio::select! {
        biased;
        ended = runs => world.note(format_args!("{process}: {ended}")),
        never = stops => match never {},
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ProcessProfile {
    pub(crate) kind: Kind,
    pub(crate) slots: NonZeroU32,
    pub(crate) ttl: Ttl,
    pub(crate) clock: SimClock,
    /// The date on its wall clock when it starts; `None` for one that stands still in 1970.
    pub(crate) wall: Option<Duration>,
    pub(crate) service: ServiceProfile,
    pub(crate) seed: u64,
    /// For [`Kind::Once`]: the number of the period.
    pub(crate) period: u32,
    /// For [`Kind::Once`]: how often its job may be started.
    pub(crate) attempts: NonZeroU32,
}

/// Which program a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One VVM, which ends with its leadership.
    Vvm,
    /// A host, which campaigns again, and heeds pauses.
    Host,
    /// Several leaderships on one engine.
    Many,
    /// A host that does a job once per period, as `vvm once`.
    Once,
}

/// How its service behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceProfile {
    pub(crate) start_takes: Duration,
    pub(crate) stop_takes: Duration,
    pub(crate) fails_to_start: bool,
    pub(crate) refuses_to_stop: bool,
    pub(crate) ends_after: Option<Duration>,
    pub(crate) panics_after: Option<Duration>,
    pub(crate) writes_documents: bool,
    /// The work of a host is a command under supervision.
    pub(crate) is_command: bool,
}

/// What the world decides about a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) slots: NonZeroU32,
    pub(crate) only_hosts: bool,
    /// All processes do a job once per period, which may be started so often.
    pub(crate) once: Option<NonZeroU32>,
    pub(crate) drift: Drift,
    pub(crate) walls: Walls,
}

/// What wall clocks show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walls {
    Anything,
    /// The date.
    Right,
    /// 1970, so that epochs only count, and repeat if the storage forgets some.
    Unset,
}

impl ProcessProfile {
    pub(crate) fn draw(rng: &mut Rng, world: &Surroundings, time: &MockClock) -> Self {
        let ttls = [Duration::from_secs(4), Duration::from_secs(10), Duration::from_secs(20)];
        let ttl = Ttl::new(ttls[rng.usize(..ttls.len())]).unwrap_or_default();
        let up_to = |rng: &mut Rng, most: u64| Duration::from_millis(rng.u64(..most));
        let one_in = |rng: &mut Rng, n: u32| rng.u32(..n) == 0;
        let service = ServiceProfile {
            start_takes: up_to(rng, 3_000),
            stop_takes: up_to(rng, 6_000),
            fails_to_start: one_in(rng, 20),
            refuses_to_stop: one_in(rng, 10),
            ends_after: one_in(rng, 10).then(|| up_to(rng, 60_000)),
            panics_after: one_in(rng, 20).then(|| up_to(rng, 60_000)),
            writes_documents: !one_in(rng, 3),
            is_command: rng.bool(),
        };
        let kind = match rng.u32(..4) {
            _ if world.once.is_some() => Kind::Once,
            _ if world.only_hosts => Kind::Host,
            0 => Kind::Host,
            1 => Kind::Many,
            _ => Kind::Vvm,
        };
        let wall = match world.walls {
            Walls::Anything => Some(Duration::from_secs(rng.u64(..2_000_000_000))),
            Walls::Right => Some(Duration::from_secs(1_700_000_000) + time.now().since(Instant::ORIGIN)),
            Walls::Unset => None,
        };
        let clock = SimClock::draw(time, world.drift, rng);
        let (period, attempts) = (0, world.once.unwrap_or(NonZeroU32::MIN));
        Self { kind, slots: world.slots, ttl, clock, wall, service, seed: rng.u64(..), period, attempts }
    }

    /// Whether a guardian may start it: as every host that leads for one command, it leads once at a time.
    pub(crate) fn may_be_guarded(&self) -> bool {
        self.kind != Kind::Many
    }

    /// The same process with a service that starts, stops and runs as it should.
    pub(crate) fn sound(mut self) -> Self {
        self.service.fails_to_start = false;
        self.service.refuses_to_stop = false;
        self.service.ends_after = None;
        self.service.panics_after = None;
        self
    }
}
