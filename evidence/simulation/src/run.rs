//! One run: one seed, one world, one result.

use crate::{
    executor::{Executor, Process},
    faults::{Counts, FAULTS_END, FaultRates},
    process::{self, ProcessProfile},
    trace::Trace,
    world::{Signal, World},
};
use fastrand::Rng;
use std::{sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant};

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) seed: u64,
    pub(crate) violation: Option<String>,
    pub(crate) counts: Counts,
    /// Hash of the whole trace: equal for equal seeds.
    pub(crate) hash: u64,
    pub(crate) steps: u64,
}

/// Enough for the longest TTL on the slowest clock, after the latest message, to pass twice.
const END: Instant = Instant::from_nanos(400_000_000_000);
/// How soon an ended process is noticed.
const WATCH: Duration = Duration::from_millis(500);
/// A run takes more steps only if a task spins (I10).
const MOST_STEPS: u64 = 5_000_000;

pub(crate) fn run(seed: u64, print: bool) -> RunResult {
    let mut rng = Rng::with_seed(seed);
    let rates = FaultRates::draw(&mut rng);
    let slots = rng.u32(1..=3);
    let vvms = rng.u32(2..=6);
    let mut executor = Executor::default();
    let clock = MockClock::starting_at(Instant::from_nanos(1));
    let world = World::new(clock, executor.inbox.clone(), rng.fork(), rates.clone(), Trace::new(print));
    world.prove_ages(rng.bool());
    world.note(format_args!("seed {seed}: {vvms} VVMs on {slots} slots, {rates:?}"));
    for lineage in 1..=vvms {
        let life = lives(Arc::clone(&world), lineage, slots, rng.fork());
        world.spawn(Process::WORLD, "life", Box::pin(life));
    }
    let end_of_faults = end_faults(Arc::clone(&world));
    world.spawn(Process::WORLD, "end of faults", Box::pin(end_of_faults));

    let mut steps = 0;
    loop {
        while let Some(_polled) = executor.step(&mut rng) {
            steps += 1;
            world.check();
            deliver_signals(&world, &mut executor);
            if steps > MOST_STEPS {
                world.state().violation.get_or_insert_with(|| format!("I10: more than {MOST_STEPS} steps"));
            }
            if world.state().violation.is_some() {
                return result(seed, &world, steps);
            }
        }
        if world.clock.now() >= END || world.clock.advance_to_next().is_none() {
            break;
        }
    }
    let led = world.working();
    if led < slots.min(vvms) as usize {
        let idle = format!("liveness: {led} of {slots} slots led by {vvms} VVMs long after the last fault");
        world.state().violation.get_or_insert(idle);
    }
    result(seed, &world, steps)
}

fn result(seed: u64, world: &World, steps: u64) -> RunResult {
    let state = world.state();
    RunResult {
        seed,
        violation: state.violation.clone(),
        counts: state.counts.clone(),
        hash: state.trace.hash(),
        steps,
    }
}

fn deliver_signals(world: &World, executor: &mut Executor) {
    let signals = std::mem::take(&mut world.state().signals);
    for signal in signals {
        match signal {
            Signal::Crash(process) => executor.crash(process),
            Signal::Pause(process) => executor.pause(process),
            Signal::Resume(process) => executor.resume(process),
            Signal::Ended(process) => {
                // The task that sent the signal has ended with it.
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

async fn end_faults(world: Arc<World>) {
    world.clock.sleep_until(FAULTS_END).await;
    world.state().rates = FaultRates::none();
    world.note(format_args!("no faults from here on"));
}

/// Starts one VVM, injects faults until it ends, and starts it again.
async fn lives(world: Arc<World>, lineage: u32, slots: u32, mut rng: Rng) {
    for life in 0.. {
        let process = Process(lineage * 1000 + life);
        let mut profile = ProcessProfile::draw(&mut rng, slots);
        if world.clock.now() >= FAULTS_END {
            profile = profile.sound();
        }
        let stop = Arc::new(Notify::new());
        process::start(&world, process, profile, Arc::clone(&stop));
        let mut fault_at = next_fault(&world, &mut rng);
        while world.is_alive(process) {
            world.clock.sleep(WATCH).await;
            if world.clock.now() >= FAULTS_END {
                continue;
            }
            if world.is_alive(process) && world.clock.now() >= fault_at {
                inject_fault(&world, process, &stop, &mut rng).await;
                fault_at = next_fault(&world, &mut rng);
            }
        }
        world.clock.sleep(Duration::from_secs(5).mul_f64(rng.f64())).await;
    }
}

fn next_fault(world: &World, rng: &mut Rng) -> Instant {
    let every = world.state().rates.process_fault_every;
    world.clock.now().after(every.mul_f64(2.0 * rng.f64()))
}

async fn inject_fault(world: &Arc<World>, process: Process, stop: &Notify, rng: &mut Rng) {
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
            world.state().signals.push(Signal::Pause(process));
            world.clock.sleep(Duration::from_secs(30).mul_f64(rng.f64())).await;
            world.state().signals.push(Signal::Resume(process));
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
