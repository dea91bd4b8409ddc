//! Bounds of real time.

use rustix::fs::FlockOperation;
use std::time::Duration;

/// Repeats `trial` until it took less than `bound`, at most ten times.
///
/// A machine that is busy with other things can delay any process by more than a bound that the design promises, so one
/// trial in ten must keep it. What is wrong with the program, and not with the machine, shows in all of them.
pub fn within(what: &str, bound: Duration, mut trial: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 10 {
        took.push(trial());
        if took.last().is_some_and(|took| *took < bound) {
            println!("{what}: {took:?}");
            return;
        }
    }
    panic!("{what}: not once within {bound:?}: {took:?}");
}

/// What the design promises for the time between the death of host or guardian and that of the last descendant.
pub const OUTLIVING: Duration = Duration::from_millis(50);

/// How many trials [`promptly`] makes, and how many of them must keep the bound.
const TRIALS: usize = 7;
const PROMPT: usize = 4;

/// The same for a machine that others want, where any process may have to wait for longer than the bound: so many trials
/// at most, until so many have kept it.
const TRIALS_IF_BUSY: usize = 20;
const PROMPT_IF_BUSY: usize = 2;

/// How many processes for each processor make a machine busy.
const BUSY: f64 = 2.0;

/// What no trial may take more than was promised: what the usual TTL of 20 s leaves between the deadline and the first
/// moment of another leader.
const MARGIN: Duration = Duration::from_secs(4);

/// Repeats `trial`: half of the trials must keep the bound, or as many as a busy machine lets them, and none may take so
/// long that somebody else could lead by then.
pub fn promptly(what: &str, bound: Duration, mut trial: impl FnMut() -> Duration) {
    // One at a time, and no other test that measures: they shall not be what keeps each other waiting.
    let alone = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    rustix::fs::flock(&alone, FlockOperation::LockExclusive).unwrap();
    let mut took = Vec::new();
    loop {
        took.push(trial());
        let prompt = took.iter().filter(|took| **took <= bound).count();
        let load = load();
        let (trials, needed) = if load > BUSY { (TRIALS_IF_BUSY, PROMPT_IF_BUSY) } else { (TRIALS, PROMPT) };
        assert!(took.iter().all(|took| *took <= bound + MARGIN), "{what}: far beyond {bound:?}: {took:?}");
        if prompt >= needed && took.len() >= TRIALS {
            println!("{what}: {took:?}, {load:.1} processes for each processor");
            return;
        }
        assert!(took.len() < trials, "{what}: not {needed} within {bound:?}, load {load:.1}: {took:?}");
    }
}

/// How many processes have wanted each processor, in the last minute (proc_loadavg(5)).
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    let runnable = text.split(' ').next().unwrap().parse::<f64>().unwrap();
    runnable / std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}
