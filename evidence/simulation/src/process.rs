//! One simulated process on its own clock: a VVM, a host, or a program with several leaderships.

mod command;
mod deadman;
mod guardian;
mod host;
mod many;
mod profile;
mod service;
mod vvm;

pub(crate) use profile::{ProcessProfile, Surroundings, Walls};

use crate::{
    executor::{Process, Task},
    process::profile::Kind,
    storage::RemoteStorage,
    world::{Signal, World},
};
use fastrand::Rng;
use ielections::{Entropy, Env, Spawn};
use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use testing_time::MockClock;
use tokio::sync::{Notify, watch};
use vvm_clock::{Clock as _, Instant, WallClock};
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
    ElectionsTtlStorage::new(Arc::new(RemoteStorage { world: Arc::clone(world), process }))
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
    let (deadman, deadline) = deadman::start(world, process, &clock);
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
        Kind::Vvm => Box::pin(started.run_to_exit(vvm::run)),
        Kind::Host => Box::pin(started.run_to_exit(host::run)),
        Kind::Many => Box::pin(started.run_to_exit(many::run)),
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
