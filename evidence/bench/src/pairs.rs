//! Acquire and release on `mem`, one pair after another: what the engine itself costs.

use crate::{
    bed::{Bed, BedError, Deadline},
    figure::{Figure, Side, Statistic, Unit},
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
    #[error("a slot that nobody else wants was not acquired: {0}")]
    Acquire(#[from] AcquireError),
    #[error("a record was not released: {0:?}")]
    Release(Handback),
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, PairsError> {
    let (rounds, pairs) = if quick { (3, 20_000) } else { (9, 200_000) };
    let ignored = Bed::make(Deadline::Ignored)?;
    let mut samples = Vec::new();
    // The first round warms up and is not counted.
    for round in 0..=rounds {
        let sample = pairs_per_second(&ignored, pairs)?;
        if round > 0 {
            samples.push(sample);
        }
    }
    Ok(vec![Figure::new("pairs on mem, deadline ignored", Unit::PairsPerSecond, samples).with_goal(
        Statistic::Median,
        Side::AtLeast,
        GOAL,
    )])
}

fn pairs_per_second(bed: &Bed, pairs: u32) -> Result<f64, PairsError> {
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
    Ok(f64::from(pairs) / SystemClock::read().since(started).as_secs_f64())
}
