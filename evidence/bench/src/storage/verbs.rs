//! One acquisition, one renewal and one release, each beside its bare statement, by turns.
//!
//! Acquisition and release go through an engine, renewal through [`TtlStorage`], since an engine renews when
//! it is due. An acquisition reads before it writes; the bare statement is the write alone.

use super::{BareStatements, Scene, StorageError};
use crate::report::{Figure, Side, Statistic, Unit};
use ielections::{Claim, Elections, Entry, ReleaseOutcome, Swap, TtlStorage, Vacant, Version};
use vvm_clock::SystemClock;
use vvm_storage::ElectionKey;

/// The most that a verb may cost, in multiples of its bare statement: a tenth for us. The read that begins an
/// acquisition may cost as much again.
const GOALS: [(&str, f64); 3] = [("acquire", 2.2), ("renew", 1.1), ("release", 1.1)];

/// Microseconds of one acquisition, one renewal and one release.
type Sample = [f64; 3];

pub(super) async fn measure(
    scene: &Scene,
    bare: &mut dyn BareStatements,
    rounds: u32,
) -> Result<Vec<Figure>, StorageError> {
    // The first rounds fill caches and prepare statements.
    const WARM_UP: u32 = 3;
    let scene = &scene.settled(WARM_UP + rounds).await?;
    let elections = scene.elections();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        let sample = (through_elections(scene, &elections, round).await?, directly(bare, round).await?);
        if round >= WARM_UP {
            ours.push(sample.0);
            theirs.push(sample.1);
        }
    }
    elections.cleanup().await;
    Ok(figures(&scene.scheme, &ours, &theirs))
}

fn figures(scheme: &str, ours: &[Sample], theirs: &[Sample]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (index, (verb, goal)) in GOALS.into_iter().enumerate() {
        let of = |samples: &[Sample]| samples.iter().map(|sample| sample[index]).collect::<Vec<f64>>();
        let (our, their) = (of(ours), of(theirs));
        let ratios = our.iter().zip(&their).map(|(our, their)| our / their).collect();
        figures.push(Figure::new(format!("{verb} on {scheme}"), Unit::Microseconds, our));
        figures.push(Figure::new(format!("{verb}, the bare statement"), Unit::Microseconds, their));
        figures.push(Figure::new(format!("{verb}, ratio of each pair"), Unit::Ratio, ratios).with_goal(
            Statistic::Median,
            Side::AtMost,
            goal,
        ));
    }
    figures
}

async fn through_elections(
    scene: &Scene,
    elections: &Elections<ElectionKey>,
    slot: u32,
) -> Result<Sample, StorageError> {
    let (won, acquire) = timed(elections.acquire(scene.candidacy([slot]))).await;
    let (key, leadership) = won?;
    let held = scene.storage.get(&key).await?.entry().cloned().ok_or(StorageError::Refused)?;
    let renewed = held.renewed(held.version.next());
    let (swap, renew) = timed(scene.storage.compare_and_swap(&key, &held, &renewed)).await;
    if swap? != Swap::Swapped {
        return Err(StorageError::Refused);
    }
    match timed(leadership.release()).await {
        (ReleaseOutcome::Released, release) => Ok([acquire, renew, release]),
        (other, _) => Err(StorageError::Release(other)),
    }
}

async fn directly(bare: &mut dyn BareStatements, slot: u32) -> Result<Sample, StorageError> {
    let (claimed, claim) = timed(bare.claim(slot)).await;
    claimed?;
    let (renewed, renew) = timed(bare.renew(slot)).await;
    renewed?;
    let (released, release) = timed(bare.release(slot)).await;
    released?;
    Ok([claim, renew, release])
}

/// The result of a verb, and its microseconds.
async fn timed<T>(call: impl Future<Output = T>) -> (T, f64) {
    let began = SystemClock::read();
    let outcome = call.await;
    (outcome, began.until(SystemClock::read()).as_secs_f64() * 1e6)
}

/// The leader of a slot, and its entry.
pub(super) struct Leader<'scene> {
    pub(super) scene: &'scene Scene,
    pub(super) key: ElectionKey,
    pub(super) held: Entry,
    /// The last entry that it tried to write.
    version: Version,
}

impl<'scene> Leader<'scene> {
    pub(super) async fn claim(scene: &'scene Scene, key: ElectionKey) -> Result<Self, StorageError> {
        let held = scene.entry()?;
        match scene.storage.insert_if_not_exist(&key, Vacant::default(), &held).await? {
            Claim::Claimed => Ok(Self { scene, key, version: held.version, held }),
            Claim::Refused(_) => Err(StorageError::Refused),
        }
    }

    /// Renews. Returns the milliseconds that it took; `None` if it was not confirmed. The next one continues
    /// from what a read shows.
    pub(super) async fn renew(&mut self) -> Result<Option<f64>, StorageError> {
        let began = self.scene.clock.now();
        self.version = self.version.next();
        let renewed = self.held.renewed(self.version);
        match self.scene.storage.compare_and_swap(&self.key, &self.held, &renewed).await {
            Ok(Swap::Swapped) => {
                self.held = renewed;
                Ok(Some(began.until(self.scene.clock.now()).as_secs_f64() * 1e3))
            }
            // An unanswered renewal may have written this.
            Ok(Swap::Mismatch(_)) | Err(_) => {
                let stands = self.scene.storage.get(&self.key).await?;
                self.held = stands.entry().cloned().ok_or(StorageError::Refused)?;
                Ok(None)
            }
        }
    }

    pub(super) async fn release(&self) -> Result<(), StorageError> {
        let Entry { version, epoch, .. } = &self.held;
        self.scene.storage.compare_and_delete(&self.key, version.incarnation, *epoch).await?;
        Ok(())
    }
}
