//! Sixty-four leaders that renew as fast as they can: how many renewals a second, and how many came to nothing.

use super::{Scene, StorageError};
use crate::figure::{Figure, Side, Statistic, Unit};
use clock::{Instant, SystemClock};
use futures_util::future::try_join_all;
use ielections::{Claim, Entry, Swap, TtlStorage, Vacant};
use std::time::Duration;
use vvm_storage::ElectionKey;

const LEADERS: u32 = 64;
/// Slots that no other part uses.
const FIRST_SLOT: u32 = 10_000;
/// What sixty-four leaders should get out of three nodes of Cassandra on two cores.
const GOAL: f64 = 1_000.0;

pub(super) async fn measure(scene: &Scene, quick: bool) -> Result<Vec<Figure>, StorageError> {
    let span = Duration::from_secs(if quick { 2 } else { 10 });
    let mut leaders = Vec::new();
    for slot in FIRST_SLOT..FIRST_SLOT + LEADERS {
        leaders.push(Leader::claim(scene, scene.key(slot)).await?);
    }
    let began = SystemClock::read();
    let until = began.after(span);
    let tallies = try_join_all(leaders.iter_mut().map(|leader| leader.renew(until))).await?;
    let took = began.until(SystemClock::read()).as_secs_f64();
    for leader in &leaders {
        let Entry { version, epoch, .. } = &leader.held;
        scene.storage.compare_and_delete(&leader.key, version.incarnation, *epoch).await?;
    }
    let confirmed: Vec<f64> = tallies.iter().flat_map(|tally| tally.millis.iter().copied()).collect();
    let unconfirmed = tallies.iter().map(|tally| f64::from(tally.unconfirmed)).sum();
    let name = |what| format!("{LEADERS} leaders at once: {what}");
    let rate = Figure::new(name("renewals"), Unit::PerSecond, vec![confirmed.len() as f64 / took]);
    // What is embedded is as fast as its disk; what is reached over a network should not be held up by us.
    let networked = !matches!(scene.scheme.as_str(), "sqlite" | "sled" | "mem");
    Ok(vec![
        if networked { rate.with_goal(Statistic::Median, Side::AtLeast, GOAL) } else { rate },
        Figure::new(name("each renewal"), Unit::Milliseconds, confirmed),
        Figure::new(name("not confirmed"), Unit::Count, vec![unconfirmed]).with_goal(
            Statistic::Max,
            Side::AtMost,
            0.0,
        ),
    ])
}

/// One leader, without an engine, which would renew at its own pace.
struct Leader<'scene> {
    scene: &'scene Scene,
    key: ElectionKey,
    held: Entry,
}

/// What came of one leader's renewals.
#[derive(Default)]
struct Tally {
    /// Of each that was confirmed.
    millis: Vec<f64>,
    /// Timed out, or failed otherwise; the next one goes on from what a read then shows.
    unconfirmed: u32,
}

impl<'scene> Leader<'scene> {
    async fn claim(scene: &'scene Scene, key: ElectionKey) -> Result<Self, StorageError> {
        let held = scene.entry()?;
        match scene.storage.insert_if_not_exist(&key, Vacant::default(), &held).await? {
            Claim::Claimed => Ok(Self { scene, key, held }),
            Claim::Refused(_) => Err(StorageError::Refused),
        }
    }

    async fn renew(&mut self, until: Instant) -> Result<Tally, StorageError> {
        let mut tally = Tally::default();
        let mut version = self.held.version;
        loop {
            let began = self.scene.clock.now();
            if began >= until {
                return Ok(tally);
            }
            version = version.next();
            let renewed = self.held.renewed(version);
            match self.scene.storage.compare_and_swap(&self.key, &self.held, &renewed).await {
                Ok(Swap::Swapped) => {
                    tally.millis.push(began.until(self.scene.clock.now()).as_secs_f64() * 1e3);
                    self.held = renewed;
                }
                // After an unanswered one, this may be what it wrote.
                Ok(Swap::Mismatch(_)) | Err(_) => {
                    tally.unconfirmed += 1;
                    self.held = self.read_back().await?;
                }
            }
        }
    }

    async fn read_back(&self) -> Result<Entry, StorageError> {
        self.scene.storage.get(&self.key).await?.entry().cloned().ok_or(StorageError::Refused)
    }
}
