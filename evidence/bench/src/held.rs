//! The engine on `mem`: pairs of acquire and release, one after another, and many leaderships held at once, with
//! resident memory of each, and CPU time of each renewal. Each round of held leaderships is a process of its own: an
//! allocator returns little memory, so in a second round leaderships would seem to cost nothing.

use crate::{
    process,
    report::{Failure, Figure, Unit},
    setup::{Deadline, Scene, in_own_process},
};
use clap::Args;
use ielections::{Leadership, ReleaseOutcome, Ttl};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU32, time::Duration};
use tokio::runtime::Runtime;
use vvm_clock::SystemClock;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Round {
    #[arg(long)]
    leaderships: NonZeroU32,
    /// How long they are held, after all are acquired.
    #[arg(long)]
    ttl_millis: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Found {
    bytes_of_rows: u64,
    bytes_of_leaderships: u64,
    cpu: Duration,
    renewals: u64,
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (rounds, leaderships, ttl_millis) = if quick { (1, 20_000, 5_000) } else { (3, 100_000, 20_000) };
    let leaderships = NonZeroU32::new(leaderships).unwrap_or(NonZeroU32::MIN);
    let arguments =
        ["--leaderships".into(), leaderships.to_string(), "--ttl-millis".into(), ttl_millis.to_string()];
    let found =
        (0..rounds).map(|_| in_own_process("held-round", &arguments)).collect::<Result<Vec<_>, _>>()?;
    let samples = |of: fn(&Found) -> f64| found.iter().map(of).collect::<Vec<f64>>();
    let each = |bytes: u64| bytes as f64 / f64::from(leaderships.get());
    Ok(vec![
        Figure::new(
            "memory of a held leadership: engine, standing, handle, deadman",
            Unit::Bytes,
            found.iter().map(|found| each(found.bytes_of_leaderships)).collect(),
        ),
        Figure::new(
            "memory of its row in mem, beside that",
            Unit::Bytes,
            found.iter().map(|found| each(found.bytes_of_rows)).collect(),
        ),
        Figure::new(
            "CPU of a renewal on mem, deadman of the system",
            Unit::Microseconds,
            samples(|found| found.cpu.as_secs_f64() * 1e6 / found.renewals as f64),
        ),
    ])
}

impl Round {
    pub(crate) fn run(self) -> Result<(), Failure> {
        println!("{}", serde_json::to_string(&self.hold()?)?);
        Ok(())
    }

    fn hold(self) -> Result<Found, Failure> {
        let ttl = Ttl::new(Duration::from_millis(self.ttl_millis))?;
        let (for_rows, only_rows) = Scene::in_memory(Deadline::Ignored)?;
        let (runtime, scene) = Scene::in_memory(Deadline::System)?;
        let slots = || 0..self.leaderships.get();

        // Warm-up of both. A row is as a leadership would write it.
        for_rows.block_on(only_rows.claim(&only_rows.key(u32::MAX), ttl))?;
        runtime.block_on(async {
            Ok::<_, Failure>(scene.acquire(scene.key(u32::MAX), ttl).await?.release().await)
        })?;

        let empty = process::resident_bytes()?;
        for_rows.block_on(async {
            for slot in slots() {
                only_rows.claim(&only_rows.key(slot), ttl).await?;
            }
            Ok::<_, Failure>(())
        })?;
        let with_rows = process::resident_bytes()?;
        let bytes_of_rows = with_rows - empty;

        runtime.block_on(async {
            let mut leaderships: Vec<Leadership> = Vec::with_capacity(self.leaderships.get() as usize);
            for slot in slots() {
                leaderships.push(scene.acquire(scene.key(slot), ttl).await?);
            }
            let mut before = 0;
            for slot in slots() {
                before += scene.writes(&scene.key(slot)).await?;
            }
            let cpu_before = process::cpu_time()?;
            scene.clock.sleep(ttl.get()).await;
            let cpu = process::cpu_time()?.saturating_sub(cpu_before);
            let resident = process::resident_bytes()?;
            let mut after = 0;
            for slot in slots() {
                after += scene.writes(&scene.key(slot)).await?;
            }
            for leadership in leaderships {
                if leadership.standing().loss().is_some() {
                    return Err("a leadership was lost".into());
                }
                leadership.release().await;
            }
            Ok(Found {
                bytes_of_rows,
                bytes_of_leaderships: (resident - with_rows).saturating_sub(bytes_of_rows),
                cpu,
                renewals: after - before,
            })
        })
    }
}

/// Measures acquire and release, pair after pair. The original in Go did 317,000 a second on a machine with two cores.
pub(crate) fn measure_pairs(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (rounds, pairs) = if quick { (3, 20_000) } else { (9, 200_000) };
    let scenes = [Scene::in_memory(Deadline::System)?, Scene::in_memory(Deadline::Ignored)?];
    let mut found: [Vec<Pairs>; 2] = Default::default();
    // By turns, so that other load hits both alike. The first round warms up.
    for round in 0..=rounds {
        for (scene, found) in scenes.iter().zip(&mut found) {
            let sample = pairs_of_round(scene, pairs)?;
            if round > 0 {
                found.push(sample);
            }
        }
    }
    let [system, ignored] = found;
    let rate = |name, found: &[Pairs]| {
        Figure::new(name, Unit::PairsPerSecond, found.iter().map(|found| found.per_second).collect())
    };
    let cpu = |name, found: &[Pairs]| {
        Figure::new(name, Unit::Microseconds, found.iter().map(|found| found.cpu_micros).collect())
    };
    Ok(vec![
        rate("pairs on mem, deadman of the system", &system),
        rate("pairs on mem, deadline ignored", &ignored),
        cpu("CPU of a pair on mem, deadman of the system", &system),
        cpu("CPU of a pair on mem, deadline ignored", &ignored),
    ])
}

struct Pairs {
    per_second: f64,
    cpu_micros: f64,
}

fn pairs_of_round((runtime, scene): &(Runtime, Scene), pairs: u32) -> Result<Pairs, Failure> {
    let cpu_before = process::cpu_time()?;
    let started = SystemClock::read();
    runtime.block_on(async {
        for _ in 0..pairs {
            let leadership = scene.acquire(scene.key(0), Ttl::DEFAULT).await?;
            match leadership.release().await {
                ReleaseOutcome::Released => {}
                other => return Err(format!("a record was not released: {other}").into()),
            }
        }
        Ok::<_, Failure>(())
    })?;
    let taken = SystemClock::read().since(started);
    let cpu = process::cpu_time()?.saturating_sub(cpu_before);
    let pairs = f64::from(pairs);
    Ok(Pairs { per_second: pairs / taken.as_secs_f64(), cpu_micros: cpu.as_secs_f64() * 1e6 / pairs })
}
