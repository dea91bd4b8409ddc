//! One simulated process on its own clock: a host, or a program with several leaderships.

mod deadman;
mod service;

use crate::{
    clock::{Drift, Process, SimClock, Task},
    storage::RemoteStorage,
    world::{Signal, World},
};
use fastrand::Rng;
use ielections::{Entropy, Env, Holder, Loss, Spawn, Ttl, successor::SupportPeriod};
use service::Worker;
use std::{
    convert::Infallible,
    future::pending,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use testing_time::MockClock;
use tokio::sync::Notify;
use vvm_clock::{Clock as _, Instant, WallClock};
use vvm_host::{Host, HostOutcome, HostSettings, Next};
use vvm_orch::{Problem, Service};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

pub(crate) const NAME: &str = "sim";

struct Started {
    world: Arc<World>,
    process: Process,
    profile: ProcessProfile,
    env: Env,
    storage: Arc<ElectionsTtlStorage>,
    stop: Arc<Notify>,
}

pub(crate) fn storage_of(world: &Arc<World>, process: Process) -> ElectionsTtlStorage {
    ElectionsTtlStorage::new(remote_storage(world, process))
}

fn remote_storage(world: &Arc<World>, process: Process) -> Arc<RemoteStorage> {
    Arc::new(RemoteStorage { world: Arc::clone(world), process })
}

pub(crate) fn slots(count: NonZeroU32) -> Vec<ElectionKey> {
    let cluster = ClusterName::from(NAME);
    SlotNumber::all(count).map(|slot| ElectionKey { cluster: cluster.clone(), slot }).collect()
}

/// Starts `process`. It lives until it crashes, its deadman kills it, or it has shut down after `stop`.
pub(crate) fn start(world: &Arc<World>, process: Process, profile: ProcessProfile, stop: Arc<Notify>) {
    let clock = profile.clock.clone();
    let campaigns_again = profile.kind != Kind::Host { campaigns_again: false };
    world.born(process, clock.clone(), campaigns_again);
    let wall = SimWall { began: profile.wall, since: world.clock.now(), time: world.clock.clone() };
    let deadman = deadman::start(world, process, &clock);
    let env = Env {
        clock: Arc::new(clock.clone()),
        wall: Arc::new(wall),
        deadman,
        entropy: Arc::new(SeededEntropy(Mutex::new(Rng::with_seed(profile.seed)))),
        spawn: Arc::new(SimSpawn { world: Arc::clone(world), process }),
    };
    let storage = Arc::new(storage_of(world, process));
    let started = Started { world: Arc::clone(world), process, profile, env, storage, stop };
    let main: Task = match started.profile.kind {
        Kind::Host { campaigns_again } => {
            Box::pin(started.run_to_exit(async move |started| run_host(started, campaigns_again).await))
        }
        Kind::Many => Box::pin(started.run_to_exit(service::run)),
    };
    world.spawn(process, "main", main);
}

impl Started {
    async fn run_to_exit(self, main: impl AsyncFn(&Self)) {
        main(&self).await;
        let Self { world, process, .. } = self;
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

async fn run_host(started: &Started, campaigns_again: bool) {
    let Started { world, process, profile, env, stop, .. } = started;
    let mut settings = HostSettings::new("simulated", NAME);
    settings.slots = profile.slots;
    settings.ttl = profile.ttl;
    settings.holder = Holder::new("10.0.0.9").ok();
    let Ok(host) = Host::on_storage(settings, env.clone(), remote_storage(world, *process)) else { return };
    let stopped = host.stop();
    let stops = async {
        stop.notified().await;
        world.count(|counts| counts.stops += 1);
        stopped.cancel();
        pending::<Infallible>().await
    };
    let services = || vec![Box::new(Worker::of(started)) as Box<dyn Service<_>>];
    let runs = host.run_then(services, |ended| {
        let HostOutcome::Problem(problem) = ended else { return Next::Stop };
        world.note(format_args!("{process} has a problem: {problem:?}"));
        world.count(|counts| counts.problems += 1);
        match problem {
            Problem::Lost(Loss::Stolen { by }) => world.lost_to(*process, Some(by.incarnation())),
            Problem::Lost(Loss::EpochWentBack { held, found }) if *found == Some(*held) => {
                world.lost_to(*process, None);
            }
            _ => {}
        }
        match problem {
            Problem::Lost(_) if campaigns_again => Next::CampaignAfter(Duration::ZERO),
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
    /// The support period, if its leaders may have a successor.
    pub(crate) support: Option<SupportPeriod>,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A host, which ends with a lost leadership, or campaigns again.
    Host {
        campaigns_again: bool,
    },
    Many,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceProfile {
    pub(crate) start_takes: Duration,
    pub(crate) stop_takes: Duration,
    pub(crate) fails_to_start: bool,
    pub(crate) refuses_to_stop: bool,
    pub(crate) ends_after: Option<Duration>,
    pub(crate) panics_after: Option<Duration>,
    pub(crate) writes_documents: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) slots: NonZeroU32,
    pub(crate) only_hosts: bool,
    /// Every leader may have a successor.
    pub(crate) succession: bool,
    pub(crate) drift: Drift,
    pub(crate) walls: Walls,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walls {
    Anything,
    Right,
    /// 1970, so that epochs only count, and repeat if the storage forgets some.
    Unset,
}

impl ProcessProfile {
    pub(crate) fn draw(rng: &mut Rng, world: &Surroundings, time: &MockClock) -> Self {
        let ttls = [Duration::from_secs(4), Duration::from_secs(10), Duration::from_secs(20)];
        // With a successor, four support periods of 2 s at least.
        let ttls = if world.succession { &ttls[1..] } else { &ttls };
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
        };
        let kind = match rng.u32(..4) {
            _ if world.succession => Kind::Many,
            0 if !world.only_hosts => Kind::Many,
            0 | 1 => Kind::Host { campaigns_again: true },
            _ => Kind::Host { campaigns_again: false },
        };
        let wall = match world.walls {
            Walls::Anything => Some(Duration::from_secs(rng.u64(..2_000_000_000))),
            Walls::Right => Some(Duration::from_secs(1_700_000_000) + time.now().since(Instant::ORIGIN)),
            Walls::Unset => None,
        };
        let clock = SimClock::draw(time, world.drift, rng);
        let support = world.succession.then(|| [SupportPeriod::LEAST, ttl.get() / 4][rng.usize(..2)]);
        let support = support.and_then(|period| SupportPeriod::new(period, ttl).ok());
        Self { kind, slots: world.slots, ttl, clock, wall, service, support, seed: rng.u64(..) }
    }

    pub(crate) fn sound(mut self) -> Self {
        self.service.fails_to_start = false;
        self.service.refuses_to_stop = false;
        self.service.ends_after = None;
        self.service.panics_after = None;
        self
    }
}
