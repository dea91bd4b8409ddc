//! Acquire and release on `mem`, one pair after another: the cost of the engine itself.

use crate::process;
use crate::{
    process::ResourcesError,
    report::{Figure, Side, Statistic, Unit},
    setup::{Deadline, Setup, SetupError},
};
use ielections::{AcquireError, ReleaseOutcome, Ttl};
use std::num::NonZeroU32;
use vvm_clock::SystemClock;

/// The rate of the original in Go on a machine with two cores.
const GOAL: f64 = 317_000.0;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairsError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    #[error("a slot without another candidate was not acquired: {0}")]
    Acquire(#[from] AcquireError),
    #[error("a record was not released: {0}")]
    Release(ReleaseOutcome),
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, PairsError> {
    let (rounds, pairs) = if quick { (3, 20_000) } else { (9, 200_000) };
    let setups = [Setup::make(Deadline::System)?, Setup::make(Deadline::Ignored)?];
    let mut found: [Vec<Found>; 2] = Default::default();
    // By turns, so that other load hits both alike. The first round warms up.
    for round in 0..=rounds {
        for (setup, found) in setups.iter().zip(&mut found) {
            let sample = one_round(setup, pairs)?;
            if round > 0 {
                found.push(sample);
            }
        }
    }
    let [system, ignored] = found;
    let rate = |name, found: &[Found]| {
        Figure::new(name, Unit::PairsPerSecond, found.iter().map(|found| found.per_second).collect())
            .with_goal(Statistic::Median, Side::AtLeast, GOAL)
    };
    let cpu = |name, found: &[Found]| {
        Figure::new(name, Unit::Microseconds, found.iter().map(|found| found.cpu_micros).collect())
    };
    Ok(vec![
        rate("pairs on mem, deadman of the system", &system),
        rate("pairs on mem, deadline ignored", &ignored),
        cpu("CPU of a pair on mem, deadman of the system", &system),
        cpu("CPU of a pair on mem, deadline ignored", &ignored),
    ])
}

/// The result of a round.
struct Found {
    per_second: f64,
    /// CPU time of a pair.
    cpu_micros: f64,
}

fn one_round(setup: &Setup, pairs: u32) -> Result<Found, PairsError> {
    let cpu_before = process::cpu_time()?;
    let started = SystemClock::read();
    setup.runtime.block_on(async {
        for _ in 0..pairs {
            let leadership = setup.acquire(NonZeroU32::MIN, Ttl::DEFAULT).await?;
            match leadership.release().await {
                ReleaseOutcome::Released => {}
                other => return Err(PairsError::Release(other)),
            }
        }
        Ok(())
    })?;
    let taken = SystemClock::read().since(started);
    let cpu = process::cpu_time()?.saturating_sub(cpu_before);
    let pairs = f64::from(pairs);
    Ok(Found { per_second: pairs / taken.as_secs_f64(), cpu_micros: cpu.as_secs_f64() * 1e6 / pairs })
}
