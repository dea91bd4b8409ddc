//! The time until many candidates lead as many slots, all started at once.

use super::{Scene, StorageError};
use crate::report::{Figure, Unit};
use futures_util::future::{join_all, try_join_all};
use ielections::ReleaseOutcome;
use vvm_clock::SystemClock;

/// The first slot of this part.
const FIRST_SLOT: u32 = 20_000;

pub(super) async fn measure(scene: &Scene, quick: bool) -> Result<Vec<Figure>, StorageError> {
    let (candidates, rounds) = if quick { (10, 1) } else { (100, 5) };
    let mut seconds = Vec::new();
    for round in 0..rounds {
        seconds.push(one_round(scene, FIRST_SLOT + round * candidates, candidates).await?);
    }
    let name = format!("{candidates} candidates, until {candidates} slots are led");
    Ok(vec![Figure::new(name, Unit::Seconds, seconds)])
}

async fn one_round(scene: &Scene, first_slot: u32, count: u32) -> Result<f64, StorageError> {
    let candidates: Vec<_> = (0..count).map(|_| scene.elections()).collect();
    let candidacy = scene.candidacy(first_slot..first_slot + count);
    let began = SystemClock::read();
    let led = try_join_all(candidates.iter().map(|elections| elections.acquire(candidacy.clone()))).await?;
    let took = began.until(SystemClock::read());
    for handback in join_all(led.into_iter().map(|(_, leadership)| leadership.release())).await {
        if handback != ReleaseOutcome::Released {
            return Err(StorageError::Release(handback));
        }
    }
    for elections in candidates {
        elections.cleanup().await;
    }
    Ok(took.as_secs_f64())
}
