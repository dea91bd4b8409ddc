//! The engine on `mem`: pairs of acquire and release, one after another, and many leaderships held at once, with
//! resident memory of each, and CPU time of each renewal.
//!
//! Each round of held leaderships is a process of its own. An allocator returns little memory, so in a second round leaderships
//! would seem to cost nothing.

use crate::{
    process,
    report::{Failure, Figure, Unit},
    setup::{Deadline, Setup, in_own_process},
};
use clap::Args;
use ielections::{
    Claim, Entry, Epoch, Incarnation, Leadership, ReleaseOutcome, Ttl, TtlStorage, Vacant, Version,
};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU32, time::Duration};
use vvm_clock::SystemClock;

const LOST: &str = "a leadership was lost, or a row differs from what was written";

/// The size and duration of a round.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Round {
    #[arg(long)]
    leaderships: NonZeroU32,
    /// How long they are held, after all are acquired.
    #[arg(long)]
    ttl_millis: u64,
}

/// The result of a round.
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
    /// Holds the leaderships, and writes the result to standard output.
    pub(crate) fn run(self) -> Result<(), Failure> {
        println!("{}", serde_json::to_string(&self.hold()?)?);
        Ok(())
    }

    fn hold(self) -> Result<Found, Failure> {
        let ttl = Ttl::new(Duration::from_millis(self.ttl_millis))?;
        let only_rows = Setup::make(Deadline::Ignored)?;
        let setup = Setup::make(Deadline::System)?;
        let slots = || (1..=self.leaderships.get()).filter_map(NonZeroU32::new);

        // Warm-up of both set-ups.
        only_rows.runtime.block_on(only_rows.write_row(NonZeroU32::MAX, ttl))?;
        setup.runtime.block_on(async {
            Ok::<_, Failure>(setup.acquire(NonZeroU32::MAX, ttl).await?.release().await)
        })?;

        let empty = process::resident_bytes()?;
        only_rows.runtime.block_on(async {
            for slot in slots() {
                only_rows.write_row(slot, ttl).await?;
            }
            Ok::<_, Failure>(())
        })?;
        let with_rows = process::resident_bytes()?;
        let bytes_of_rows = with_rows - empty;

        setup.runtime.block_on(async {
            let mut leaderships: Vec<Leadership> = Vec::with_capacity(self.leaderships.get() as usize);
            for slot in slots() {
                leaderships.push(setup.acquire(slot, ttl).await?);
            }
            let mut before = 0;
            for slot in slots() {
                before += setup.writes(slot).await?;
            }
            let cpu_before = process::cpu_time()?;
            setup.clock.sleep(ttl.get()).await;
            let cpu = process::cpu_time()?.saturating_sub(cpu_before);
            let resident = process::resident_bytes()?;
            let mut after = 0;
            for slot in slots() {
                after += setup.writes(slot).await?;
            }
            for leadership in leaderships {
                if leadership.standing().loss().is_some() {
                    return Err(LOST.into());
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

impl Setup {
    /// A row as a leadership would write it.
    async fn write_row(&self, slot: NonZeroU32, ttl: Ttl) -> Result<(), Failure> {
        let version = Version { incarnation: Incarnation::from_bytes([0; 16]), write: 0 };
        let entry = Entry { holder: self.holder.clone(), version, ttl, epoch: Epoch::new(1)? };
        match self.storage.insert_if_not_exist(&self.key(slot), Vacant::default(), &entry).await? {
            Claim::Claimed => Ok(()),
            Claim::Refused(_) => Err(LOST.into()),
        }
    }

    /// How often the record of a slot was renewed, from its version.
    async fn writes(&self, slot: NonZeroU32) -> Result<u64, Failure> {
        let found = self.storage.get(&self.key(slot)).await?;
        found.entry().map(|entry| entry.version.write).ok_or_else(|| LOST.into())
    }
}

/// Measures acquire and release, one pair after another. The original in Go did 317,000 a second on a machine with two cores.
pub(crate) fn measure_pairs(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (rounds, pairs) = if quick { (3, 20_000) } else { (9, 200_000) };
    let setups = [Setup::make(Deadline::System)?, Setup::make(Deadline::Ignored)?];
    let mut found: [Vec<Pairs>; 2] = Default::default();
    // By turns, so that other load hits both alike. The first round warms up.
    for round in 0..=rounds {
        for (setup, found) in setups.iter().zip(&mut found) {
            let sample = pairs_of_round(setup, pairs)?;
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

/// The result of a round.
struct Pairs {
    per_second: f64,
    /// CPU time of a pair.
    cpu_micros: f64,
}

fn pairs_of_round(setup: &Setup, pairs: u32) -> Result<Pairs, Failure> {
    let cpu_before = process::cpu_time()?;
    let started = SystemClock::read();
    setup.runtime.block_on(async {
        for _ in 0..pairs {
            let leadership = setup.acquire(NonZeroU32::MIN, Ttl::DEFAULT).await?;
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
