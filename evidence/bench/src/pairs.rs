//! Acquire and release on `mem`, one pair after another: what the engine itself costs.

use crate::{
    bed::{Bed, BedError, Deadline},
    figure::{Figure, Side, Statistic, Unit},
    resources::{self, ResourcesError},
};
use clock::SystemClock;
use ielections::{AcquireError, Handback, Ttl};
use std::num::NonZeroU32;

/// What the original in Go does on a machine with two cores.
const GOAL: f64 = 317_000.0;

/// No figure: a pair did not go through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairsError {
    #[error(transparent)]
    Bed(#[from] BedError),
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    #[error("a slot that nobody else wants was not acquired: {0}")]
    Acquire(#[from] AcquireError),
    #[error("a record was not released: {0:?}")]
    Release(Handback),
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, PairsError> {
    let (rounds, pairs) = if quick { (3, 20_000) } else { (9, 200_000) };
    let ignored = Bed::make(Deadline::Ignored)?;
    let mut found = Vec::new();
    // The first round warms up and is not counted.
    for round in 0..=rounds {
        let sample = one_round(&ignored, pairs)?;
        if round > 0 {
            found.push(sample);
        }
    }
    let samples = |of: fn(&Found) -> f64| found.iter().map(of).collect();
    Ok(vec![
        Figure::new(
            "pairs on mem, deadline ignored",
            Unit::PairsPerSecond,
            samples(|found| found.per_second),
        )
        .with_goal(Statistic::Median, Side::AtLeast, GOAL),
        Figure::new(
            "CPU of a pair on mem, deadline ignored",
            Unit::Microseconds,
            samples(|found| found.cpu_micros),
        ),
    ])
}

/// What one round found.
struct Found {
    per_second: f64,
    /// What a pair would take on a machine that does nothing else.
    cpu_micros: f64,
}

fn one_round(bed: &Bed, pairs: u32) -> Result<Found, PairsError> {
    let cpu_before = resources::cpu_time()?;
    let started = SystemClock::read();
    bed.runtime.block_on(async {
        for _ in 0..pairs {
            let leadership = bed.acquire(NonZeroU32::MIN, Ttl::DEFAULT).await?;
            match leadership.release().await {
                Handback::Released => {}
                other => return Err(PairsError::Release(other)),
            }
        }
        Ok(())
    })?;
    let taken = SystemClock::read().since(started);
    let cpu = resources::cpu_time()?.saturating_sub(cpu_before);
    let pairs = f64::from(pairs);
    Ok(Found { per_second: pairs / taken.as_secs_f64(), cpu_micros: cpu.as_secs_f64() * 1e6 / pairs })
}
