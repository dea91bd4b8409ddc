//! Many leaderships held at once on `mem`: resident memory of each, and CPU time of each renewal.
//!
//! Each round is a process of its own. An allocator returns little memory, so in a second round leaderships
//! would seem to cost nothing.

use crate::process;
use crate::{
    process::ResourcesError,
    report::{Figure, Side, Statistic, Unit},
    setup::{Deadline, Setup, SetupError},
};
use clap::Args;
use ielections::{
    AcquireError, Claim, Entry, Epoch, Incarnation, Leadership, ReadError, Ttl, TtlStorage, Vacant, Version,
    WriteError,
    record::{EpochOutOfRange, TtlOutOfRange},
};
use serde::{Deserialize, Serialize};
use std::{env, io, num::NonZeroU32, process::Command, time::Duration};

const GOAL_BYTES: f64 = 1024.0;
const GOAL_MICROSECONDS: f64 = 2.0;

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

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeldError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    #[error(transparent)]
    Ttl(#[from] TtlOutOfRange),
    #[error(transparent)]
    Epoch(#[from] EpochOutOfRange),
    #[error("a slot without another candidate was not acquired: {0}")]
    Acquire(#[from] AcquireError),
    #[error("a row was not written: {0}")]
    Write(#[from] WriteError),
    #[error("a row was not read: {0}")]
    Read(#[from] ReadError),
    #[error("a leadership was lost, or a row differs from what was written")]
    Lost,
    #[error("a round's process could not be started: {0}")]
    Start(#[source] io::Error),
    #[error("a round's process failed: {0}")]
    Failed(String),
    #[error("a round's answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, HeldError> {
    let (rounds, leaderships, ttl_millis) = if quick { (1, 20_000, 5_000) } else { (3, 100_000, 20_000) };
    let leaderships = NonZeroU32::new(leaderships).unwrap_or(NonZeroU32::MIN);
    let round = Round { leaderships, ttl_millis };
    let found = (0..rounds).map(|_| round.in_own_process()).collect::<Result<Vec<_>, _>>()?;
    let samples = |of: fn(&Found) -> f64| found.iter().map(of).collect::<Vec<f64>>();
    let each = |bytes: u64| bytes as f64 / f64::from(leaderships.get());
    Ok(vec![
        Figure::new(
            "memory of a held leadership: engine, standing, handle, deadman",
            Unit::Bytes,
            found.iter().map(|found| each(found.bytes_of_leaderships)).collect(),
        )
        .with_goal(Statistic::Median, Side::AtMost, GOAL_BYTES),
        Figure::new(
            "memory of its row in mem, beside that",
            Unit::Bytes,
            found.iter().map(|found| each(found.bytes_of_rows)).collect(),
        ),
        Figure::new(
            "CPU of a renewal on mem, deadman of the system",
            Unit::Microseconds,
            samples(|found| found.cpu.as_secs_f64() * 1e6 / found.renewals as f64),
        )
        .with_goal(Statistic::Median, Side::AtMost, GOAL_MICROSECONDS),
    ])
}

impl Round {
    fn in_own_process(self) -> Result<Found, HeldError> {
        let itself = env::current_exe().map_err(HeldError::Start)?;
        let output = Command::new(itself)
            .arg("held-round")
            .args(["--leaderships", &self.leaderships.to_string()])
            .args(["--ttl-millis", &self.ttl_millis.to_string()])
            .output()
            .map_err(HeldError::Start)?;
        if !output.status.success() {
            return Err(HeldError::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Holds the leaderships, and writes the result to standard output.
    pub(crate) fn run(self) -> Result<(), HeldError> {
        println!("{}", serde_json::to_string(&self.hold()?)?);
        Ok(())
    }

    fn hold(self) -> Result<Found, HeldError> {
        let ttl = Ttl::new(Duration::from_millis(self.ttl_millis))?;
        let only_rows = Setup::make(Deadline::Ignored)?;
        let setup = Setup::make(Deadline::System)?;
        let slots = || (1..=self.leaderships.get()).filter_map(NonZeroU32::new);

        // Warm-up of both set-ups.
        only_rows.runtime.block_on(only_rows.write_row(NonZeroU32::MAX, ttl))?;
        setup.runtime.block_on(async {
            Ok::<_, HeldError>(setup.acquire(NonZeroU32::MAX, ttl).await?.release().await)
        })?;

        let empty = process::resident_bytes()?;
        only_rows.runtime.block_on(async {
            for slot in slots() {
                only_rows.write_row(slot, ttl).await?;
            }
            Ok::<_, HeldError>(())
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
                    return Err(HeldError::Lost);
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
    async fn write_row(&self, slot: NonZeroU32, ttl: Ttl) -> Result<(), HeldError> {
        let version = Version { incarnation: Incarnation::from_bytes([0; 16]), write: 0 };
        let entry = Entry { holder: self.holder.clone(), version, ttl, epoch: Epoch::new(1)? };
        match self.storage.insert_if_not_exist(&self.key(slot), Vacant::default(), &entry).await? {
            Claim::Claimed => Ok(()),
            Claim::Refused(_) => Err(HeldError::Lost),
        }
    }

    /// How often the record of a slot was renewed, from its version.
    async fn writes(&self, slot: NonZeroU32) -> Result<u64, HeldError> {
        let found = self.storage.get(&self.key(slot)).await?;
        found.entry().map(|entry| entry.version.write).ok_or(HeldError::Lost)
    }
}
