//! A process with one VVM: provide, launch, wait for a problem or a signal, shut down, exit.

use super::{Started, service::Worker, slots};
use crate::world::World;
use fastrand::Rng;
use ielections::{Elections, Holder, Loss};
use std::{convert::Infallible, sync::Arc, time::Duration};
use vvm_clock::Clock;
use vvm_orch::{Acquisition, Problem, RunningVvm, Vvm, VvmConfig};
use vvm_storage::ElectionKey;

pub(super) async fn run(started: &Started) {
    let Started { world, process, profile, env, storage, stop, .. } = started;
    let elections = Elections::new(Arc::clone(storage) as _, env.clone());
    let Ok(holder) = Holder::new("10.0.0.7") else { return };
    let config = VvmConfig::new(slots(profile.slots), holder, env);
    let worker = Worker::of(started).that_tells_its_guardian();
    let vvm = Vvm::provide(config, elections, vec![Box::new(worker)]);
    let running = vvm.launch(profile.ttl, Acquisition::Forever);
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
