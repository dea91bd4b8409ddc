//! Many names led at once by one process, through one engine and one pool of connections, as a program with a
//! leadership for each customer or queue.

use crate::{
    process,
    report::{Failure, Figure, Unit},
    setup::Scene,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use ielections::{Leadership, ReleaseOutcome, Ttl};
use std::{future::ready, num::NonZeroU32, time::Duration};
use vvm_clock::{Instant, SystemClock};
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

/// How many TTLs the writes are counted for.
const SPAN: u32 = 3;

/// How many names are claimed, read or released at once: no more than a server on a busy machine answers in time.
const AT_ONCE: usize = 16;

/// After how many names a line says how far it is, and how many leaderships the storage has cost.
const PROGRESS: usize = 500;

/// How often a claim is tried that the storage does not answer in time.
const ATTEMPTS: u32 = 10;

/// Leads `names` names for a while. Deadlines have no effect: a leadership that is lost is counted.
pub(super) async fn measure(scene: &Scene, names: u32, quick: bool) -> Result<Vec<Figure>, Failure> {
    let keys: Vec<ElectionKey> = (1..=names)
        .map(|number| ElectionKey {
            cluster: ClusterName::from(format!("{}-{number}", scene.cluster).as_str()),
            slot: SlotNumber::FIRST,
        })
        .collect();
    let empty = process::resident_bytes()?;
    let began = SystemClock::read();
    let mut claims = stream::iter(keys.clone()).map(|key| lead(scene, key)).buffer_unordered(AT_ONCE);
    let mut led = Vec::new();
    while let Some(leadership) = claims.next().await {
        led.push(leadership?);
        if led.len().is_multiple_of(PROGRESS) {
            let after = SystemClock::read().since(began).as_secs();
            eprintln!("{} names led after {after} s, {} of them lost", led.len(), lost(&led));
        }
    }
    drop(claims);
    let until_led = SystemClock::read().since(began);

    let (before, writes_before, cpu_before) =
        (SystemClock::read(), writes(scene, &keys).await?, process::cpu_time()?);
    scene.clock.sleep(Ttl::DEFAULT.get() * if quick { 1 } else { SPAN }).await;
    let (cpu, resident) = (process::cpu_time()?.saturating_sub(cpu_before), process::resident_bytes()?);
    let (after, writes_after) = (SystemClock::read(), writes(scene, &keys).await?);
    let lost = lost(&led);

    let span = seconds(before, after);
    let releasing = SystemClock::read();
    let releases = stream::iter(led).map(Leadership::release).buffer_unordered(AT_ONCE);
    let released = releases.filter(|outcome| ready(*outcome == ReleaseOutcome::Released)).count().await;
    let until_released = SystemClock::read().since(releasing);
    scene.elections.cleanup().await;
    let name = |what| format!("{names} names: {what}");
    Ok(vec![
        Figure::new(name("until all are led"), Unit::Seconds, vec![until_led.as_secs_f64()]),
        Figure::new(name("writes"), Unit::PerSecond, vec![(writes_after - writes_before) as f64 / span]),
        Figure::new(name("CPU time of this process"), Unit::Percent, vec![cpu.as_secs_f64() / span * 100.0]),
        Figure::new(
            name("memory of each"),
            Unit::Bytes,
            vec![resident.saturating_sub(empty) as f64 / f64::from(names)],
        ),
        Figure::new(name("memory of this process"), Unit::Bytes, vec![resident as f64]),
        Figure::new(name("leaderships lost"), Unit::Count, vec![lost as f64]),
        Figure::new(name("records released"), Unit::Count, vec![released as f64]),
        Figure::new(name("until all are released"), Unit::Seconds, vec![until_released.as_secs_f64()]),
    ])
}

/// Leads a name. As `vvm run`, it does not give up when the storage does not answer.
async fn lead(scene: &Scene, key: ElectionKey) -> Result<Leadership, Failure> {
    for _ in 1..ATTEMPTS {
        match try_lead(scene, key.clone()).await {
            Ok(leadership) => return Ok(leadership),
            Err(error) => eprintln!("{}: {error}; trying again", key.cluster),
        }
        scene.clock.sleep(Duration::from_secs(1)).await;
    }
    try_lead(scene, key).await
}

async fn try_lead(scene: &Scene, key: ElectionKey) -> Result<Leadership, Failure> {
    scene.storage.settle_slot_count(&key.cluster, NonZeroU32::MIN).await?;
    Ok(scene.acquire(key, Ttl::DEFAULT).await?)
}

async fn writes(scene: &Scene, keys: &[ElectionKey]) -> Result<u64, Failure> {
    let reads = stream::iter(keys).map(|key| scene.writes(key));
    reads.buffer_unordered(AT_ONCE).try_fold(0, async |sum, writes| Ok(sum + writes)).await
}

fn lost(led: &[Leadership]) -> usize {
    led.iter().filter(|leadership| leadership.standing().loss().is_some()).count()
}

fn seconds(from: Instant, until: Instant) -> f64 {
    until.since(from).as_secs_f64()
}
