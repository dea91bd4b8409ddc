//! One run: one seed, one world, from its weather to its verdict.

use crate::{
    executor::{Executor, Process},
    faults::{Counts, Weather},
    process::{self, Nature},
    trace::Trace,
    world::{Order, World},
};
use fastrand::Rng;
use std::{sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) violation: Option<String>,
    pub(crate) counts: Counts,
    /// Of the whole trace: equal for equal seeds.
    pub(crate) hash: u64,
    pub(crate) steps: u64,
}

/// Troubled weather until here, calm from here on.
const CALM_AFTER: Instant = Instant::from_nanos(300_000_000_000);
/// Long enough after that for the longest TTL on the slowest clock, behind the latest message, to pass twice.
const END: Instant = Instant::from_nanos(400_000_000_000);
/// How soon whoever starts processes notices that one is gone.
const WATCH: Duration = Duration::from_millis(500);
/// No run takes so many steps unless something spins (I10).
const MOST_STEPS: u64 = 5_000_000;

pub(crate) fn run(seed: u64, print: bool) -> Verdict {
    let mut rng = Rng::with_seed(seed);
    let weather = Weather::draw(&mut rng);
    let slots = rng.u32(1..=3);
    let vvms = rng.u32(2..=6);
    let mut executor = Executor::default();
    let clock = MockClock::starting_at(Instant::from_nanos(1));
    let world = World::new(clock, executor.inbox.clone(), rng.fork(), weather.clone(), Trace::new(print));
    world.prove_ages(rng.bool());
    world.note(format_args!("seed {seed}: {vvms} VVMs on {slots} slots, {weather:?}"));
    for lineage in 1..=vvms {
        let life = lives(Arc::clone(&world), lineage, slots, rng.fork());
        world.spawn(Process::WORLD, "life", Box::pin(life));
    }
    let calm = calm_down(Arc::clone(&world));
    world.spawn(Process::WORLD, "weather", Box::pin(calm));

    let mut steps = 0;
    loop {
        while let Some(_polled) = executor.step(&mut rng) {
            steps += 1;
            world.check();
            obey(&world, &mut executor);
            if steps > MOST_STEPS {
                world.state().violation.get_or_insert_with(|| format!("I10: more than {MOST_STEPS} steps"));
            }
            if world.state().violation.is_some() {
                return verdict(seed, &world, steps);
            }
        }
        if world.clock.now() >= END || world.clock.advance_to_next().is_none() {
            break;
        }
    }
    let led = world.working();
    if led < slots.min(vvms) as usize {
        let lame = format!("liveness: {led} of {slots} slots led by {vvms} VVMs after a long calm");
        world.state().violation.get_or_insert(lame);
    }
    verdict(seed, &world, steps)
}

fn verdict(seed: u64, world: &World, steps: u64) -> Verdict {
    let state = world.state();
    Verdict {
        seed,
        violation: state.violation.clone(),
        counts: state.counts.clone(),
        hash: state.trace.hash(),
        steps,
    }
}

fn obey(world: &World, executor: &mut Executor) {
    let orders = std::mem::take(&mut world.state().orders);
    for order in orders {
        match order {
            Order::Crash(process) => executor.crash(process),
            Order::Pause(process) => executor.pause(process),
            Order::Resume(process) => executor.resume(process),
            Order::Ended(process) => {
                // The task that says so has ended with saying it.
                let left = executor.tasks_of(process);
                if !left.is_empty() {
                    let leak = format!("I9: {process} has shut down, and its tasks {left:?} are left");
                    world.state().violation.get_or_insert(leak);
                }
                world.died(process, "exits");
            }
        }
    }
}

async fn calm_down(world: Arc<World>) {
    world.clock.sleep_until(CALM_AFTER).await;
    world.state().weather = Weather::calm();
    world.note(format_args!("the weather calms down"));
}

/// The lives of one VVM: started, troubled, ended one way or another, started again.
async fn lives(world: Arc<World>, lineage: u32, slots: u32, mut rng: Rng) {
    for life in 0.. {
        let process = Process(lineage * 1000 + life);
        let mut nature = Nature::draw(&mut rng, slots);
        if world.clock.now() >= CALM_AFTER {
            nature = nature.calm();
        }
        let stop = Arc::new(Notify::new());
        process::start(&world, process, nature, Arc::clone(&stop));
        let mut trouble_at = next_trouble(&world, &mut rng);
        while world.is_alive(process) {
            world.clock.sleep(WATCH).await;
            if world.clock.now() >= CALM_AFTER {
                continue;
            }
            if world.is_alive(process) && world.clock.now() >= trouble_at {
                trouble(&world, process, &stop, &mut rng).await;
                trouble_at = next_trouble(&world, &mut rng);
            }
        }
        world.clock.sleep(Duration::from_secs(5).mul_f64(rng.f64())).await;
    }
}

fn next_trouble(world: &World, rng: &mut Rng) -> Instant {
    let every = world.state().weather.trouble_every;
    world.clock.now().after(every.mul_f64(2.0 * rng.f64()))
}

async fn trouble(world: &Arc<World>, process: Process, stop: &Notify, rng: &mut Rng) {
    match rng.u32(..4) {
        0 => {
            let leading = world.is_working(process);
            world.count(|counts| {
                counts.crashes += 1;
                counts.crashes_leading += u64::from(leading);
            });
            world.died(process, "crashes");
        }
        1 | 2 => {
            world.count(|counts| counts.pauses += 1);
            world.note(format_args!("{process} is paused"));
            world.state().orders.push(Order::Pause(process));
            world.clock.sleep(Duration::from_secs(30).mul_f64(rng.f64())).await;
            world.state().orders.push(Order::Resume(process));
            world.note(format_args!("{process} goes on"));
        }
        _ => stop.notify_one(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
        let hashes: Vec<u64> = [7, 7, 8].map(|seed| run(seed, false).hash).into();
        assert_eq!(hashes[0], hashes[1]);
        assert_ne!(hashes[0], hashes[2]);
    }
}
