//! One run: one seed, one world, one result.

use crate::{
    clock::{Drift, Executor, Process},
    faults::{Counts, FAULTS_END, FaultRates},
    operator,
    process::{self, ProcessProfile, Surroundings, Walls},
    world::{Promises, Signal, Trace, World},
};
use fastrand::Rng;
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant};

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
    let slots = NonZeroU32::MIN.saturating_add(rng.u32(..3));
    let vvms = rng.u32(2..=6);
    let mut executor = Executor::default();
    let clock = MockClock::starting_at(Instant::from_nanos(1));
    let (surroundings, promises) = surroundings(&mut rng, slots, seed % 4 == 3);
    let trace = Trace::new(print);
    let world = World::new(clock, executor.inbox.clone(), rng.fork(), rates.clone(), trace, promises);
    let proves_age = rng.bool();
    world.look(|records, _| records.proves_age = proves_age);
    world.note(format_args!("seed {seed}: {vvms} processes, {surroundings:?}, {promises:?}, {rates:?}"));
    for lineage in 1..=vvms {
        let life = lives(Arc::clone(&world), lineage, surroundings, rng.fork());
        world.spawn(Process::WORLD, "life", Box::pin(life));
    }
    if surroundings.only_hosts {
        let operates = operator::operate(Arc::clone(&world), Process::OPERATOR, slots, rng.fork());
        world.spawn(Process::WORLD, "operator", Box::pin(operates));
    }
    if !promises.storage {
        let goes_back = goes_back(Arc::clone(&world), rng.fork());
        world.spawn(Process::WORLD, "backup", Box::pin(goes_back));
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
    if led < slots.get().min(vvms) as usize {
        let idle =
            format!("liveness: {led} of {slots} slots led by {vvms} processes long after the last fault");
        world.state().violation.get_or_insert(idle);
    }
    result(seed, &world, steps)
}

/// Draws what is broken beyond the assumptions of the design: in most worlds, nothing.
fn surroundings(rng: &mut Rng, slots: NonZeroU32, succession: bool) -> (Surroundings, Promises) {
    let (clocks, storage) = match rng.u32(..10) {
        0 => (false, true),
        1 | 2 => (true, false),
        _ => (true, true),
    };
    let walls = match (storage, rng.bool()) {
        (true, _) => Walls::Anything,
        (false, true) => Walls::Right,
        (false, false) => Walls::Unset,
    };
    let drift = if clocks { Drift::Within } else { Drift::Beyond };
    let surroundings =
        Surroundings { slots, only_hosts: rng.u32(..4) == 0 && !succession, succession, drift, walls };
    (surroundings, Promises { clocks, storage, wall: walls == Walls::Right })
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
            Signal::ResumeInPoll(process, reading) => {
                executor.resume(process);
                if let Some(clock) = world.clock_of(process) {
                    // The engine reads its clock first in each poll. So it seems to have been stopped after that.
                    clock.hold(reading);
                    executor.poll_first(process, "elections");
                    clock.let_go();
                }
            }
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

async fn lives(world: Arc<World>, lineage: u32, surroundings: Surroundings, mut rng: Rng) {
    for life in 0.. {
        let process = Process(lineage * 1000 + life);
        let mut profile = ProcessProfile::draw(&mut rng, &surroundings, &world.clock);
        if world.clock.now() >= FAULTS_END {
            profile = profile.sound();
        }
        let stop = Arc::new(Notify::new());
        world.count(|counts| counts.broken_clocks += u64::from(surroundings.drift == Drift::Beyond));
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
            let in_poll = rng.bool();
            let reading = world.clock_of(process).map(|clock| clock.peek());
            world.count(|counts| {
                counts.pauses += 1;
                counts.pauses_in_poll += u64::from(in_poll);
            });
            world.note(format_args!("{process} is paused"));
            world.state().signals.push(Signal::Pause(process));
            world.clock.sleep(Duration::from_secs(30).mul_f64(rng.f64())).await;
            let resume = match reading.filter(|_| in_poll) {
                Some(reading) => Signal::ResumeInPoll(process, reading),
                None => Signal::Resume(process),
            };
            world.state().signals.push(resume);
            world.note(format_args!("{process} goes on"));
        }
        _ => stop.notify_one(),
    }
}

/// Brings the storage back to an older state, now and then.
async fn goes_back(world: Arc<World>, mut rng: Rng) {
    while world.clock.now() < FAULTS_END {
        world.clock.sleep(Duration::from_secs(40).mul_f64(rng.f64())).await;
        let backup = world.look(|records, _| records.back_up());
        world.clock.sleep(Duration::from_secs(12).mul_f64(rng.f64())).await;
        // Mostly the machine of the processes stalls meanwhile, so that they see both states at once.
        let stalled = if rng.u32(..4) > 0 { world.living() } else { Vec::new() };
        stalled.iter().for_each(|process| world.state().signals.push(Signal::Pause(*process)));
        world.clock.sleep(Duration::from_secs(1).mul_f64(rng.f64())).await;
        if world.clock.now() < FAULTS_END {
            world.restore(backup);
        }
        world.clock.sleep(Duration::from_secs(1).mul_f64(rng.f64())).await;
        stalled.iter().for_each(|process| world.state().signals.push(Signal::Resume(*process)));
    }
}
