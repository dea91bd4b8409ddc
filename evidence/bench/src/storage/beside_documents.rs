//! Leaders that write documents as fast as they can and renew: documents a second, and the time of renewals.
//! A leader's renewals wait for none of its own batches; those of several leaders compete at the database.

use super::{Scene, StorageError, verbs::Leader};
use crate::report::{Figure, Side, Statistic, Unit};
use futures_util::future::try_join_all;
use ielections::{
    BatchOutcome, DocumentId, DocumentStorage, DocumentVersion, DocumentWrite, Fence, OnlyIf, TtlStorage,
};
use std::time::Duration;
use vvm_clock::{Instant, SystemClock};

/// How many leaders, and how many documents a batch has if the storage takes as many.
#[derive(Clone, Copy)]
struct Load {
    leaders: u32,
    batch: u32,
}

/// One leader that is busy, and a database that is.
const LOADS: [Load; 2] = [Load { leaders: 1, batch: 256 }, Load { leaders: 16, batch: 32 }];
/// The first slot of this part; each load has a thousand.
const FIRST_SLOT: u32 = 30_000;
const SLOTS: u32 = 1_000;
/// Bytes of a document, as of the state of a task.
const BODY: [u8; 256] = [b'x'; 256];
/// How many documents each leader has, which it writes in turn.
const DOCUMENTS: u32 = 1024;
/// How many batches lie between two renewals.
const BATCHES_A_RENEWAL: u64 = 8;
/// Between two renewals of an idle leader.
const PACE: Duration = Duration::from_millis(50);

/// The goal for three nodes of Cassandra on two cores.
const GOAL: f64 = 5_000.0;
/// How much slower documents may make the 99th percentile of renewals.
const SLOWER: f64 = 3.0;

pub(super) async fn measure(scene: &Scene, quick: bool) -> Result<Vec<Figure>, StorageError> {
    let Some(documents) = TtlStorage::documents(&*scene.storage) else { return Ok(Vec::new()) };
    let limits = documents.document_limits();
    let most = u32::try_from(limits.max_batch).unwrap_or(u32::MAX);
    // Storages that keep all documents of a slot in one value take a quarter of it in one batch.
    if limits.max_batch_bytes * 4 < DOCUMENTS as usize * BODY.len() * 4 / 3 {
        eprintln!("not measured: batches of documents, of which {DOCUMENTS} are more than a slot takes");
        return Ok(Vec::new());
    }
    let mut figures = Vec::new();
    for (number, load) in (0..).zip(LOADS) {
        let load = Load { batch: load.batch.min(most), ..load };
        figures.extend(load.measure(scene, FIRST_SLOT + number * SLOTS, quick).await?);
    }
    Ok(figures)
}

impl Load {
    async fn measure(self, scene: &Scene, first_slot: u32, quick: bool) -> Result<Vec<Figure>, StorageError> {
        let Self { leaders, batch } = self;
        let span = Duration::from_secs(if quick { 2 } else { 20 });
        let mut writers = Vec::new();
        for slot in first_slot..first_slot + leaders {
            let leader = Leader::claim(scene, scene.key(slot)).await?;
            writers.push(Writer { leader, batch, last: DocumentVersion::NONE });
        }
        let until = SystemClock::read().after(span);
        let idle = Tally::sum(try_join_all(writers.iter_mut().map(|writer| writer.idle(until))).await?);
        let began = SystemClock::read();
        let until = began.after(span);
        let busy = Tally::sum(try_join_all(writers.iter_mut().map(|writer| writer.write(until))).await?);
        let took = began.until(SystemClock::read()).as_secs_f64();
        for writer in &writers {
            writer.leader.release().await?;
        }
        let name = |what| format!("{leaders} writing batches of {batch}: {what}");
        let written = busy.batches.len() as f64 * f64::from(batch);
        let slower = percentile(&busy.renewals) / percentile(&idle.renewals);
        let slower = Figure::new(name("p99 of renewals, by that without"), Unit::Ratio, vec![slower]);
        let rate = Figure::new(name("documents"), Unit::PerSecond, vec![written / took]);
        let networked = !matches!(scene.scheme.as_str(), "sqlite" | "sled" | "mem");
        let none = |what, count| {
            Figure::new(name(what), Unit::Count, vec![count]).with_goal(Statistic::Max, Side::AtMost, 0.0)
        };
        Ok(vec![
            if networked { rate.with_goal(Statistic::Median, Side::AtLeast, GOAL) } else { rate },
            Figure::new(name("each batch"), Unit::Milliseconds, busy.batches),
            none("batches not confirmed", busy.batches_unconfirmed),
            Figure::new(name("renewals meanwhile"), Unit::Milliseconds, busy.renewals),
            Figure::new(name("renewals without"), Unit::Milliseconds, idle.renewals),
            if networked { slower.with_goal(Statistic::Max, Side::AtMost, SLOWER) } else { slower },
            none("renewals not confirmed", busy.renewals_unconfirmed + idle.renewals_unconfirmed),
        ])
    }
}

/// The 99th percentile.
fn percentile(samples: &[f64]) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples.get((samples.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// One leader, which does one thing after the other, as a document writer does.
struct Writer<'scene> {
    leader: Leader<'scene>,
    batch: u32,
    last: DocumentVersion,
}

/// Times in milliseconds.
#[derive(Default)]
struct Tally {
    batches: Vec<f64>,
    batches_unconfirmed: f64,
    renewals: Vec<f64>,
    renewals_unconfirmed: f64,
}

impl Tally {
    fn sum(tallies: Vec<Self>) -> Self {
        let mut all = Self::default();
        for tally in tallies {
            all.batches.extend(tally.batches);
            all.batches_unconfirmed += tally.batches_unconfirmed;
            all.renewals.extend(tally.renewals);
            all.renewals_unconfirmed += tally.renewals_unconfirmed;
        }
        all
    }

    fn renewed(&mut self, millis: Option<f64>) {
        match millis {
            Some(millis) => self.renewals.push(millis),
            None => self.renewals_unconfirmed += 1.0,
        }
    }
}

impl Writer<'_> {
    async fn idle(&mut self, until: Instant) -> Result<Tally, StorageError> {
        let mut tally = Tally::default();
        while self.leader.scene.clock.now() < until {
            tally.renewed(self.leader.renew().await?);
            self.leader.scene.clock.sleep(PACE).await;
        }
        Ok(tally)
    }

    async fn write(&mut self, until: Instant) -> Result<Tally, StorageError> {
        let mut tally = Tally::default();
        while self.leader.scene.clock.now() < until {
            match self.write_batch().await? {
                Some(millis) => tally.batches.push(millis),
                None => tally.batches_unconfirmed += 1.0,
            }
            if self.last.get().is_multiple_of(BATCHES_A_RENEWAL) {
                tally.renewed(self.leader.renew().await?);
            }
        }
        Ok(tally)
    }

    /// Returns its time; `None` if it was not confirmed. The next one continues from what a read shows.
    async fn write_batch(&mut self) -> Result<Option<f64>, StorageError> {
        let Leader { scene, key, held, .. } = &self.leader;
        let first = (self.last.get() as u32).wrapping_mul(self.batch) % DOCUMENTS;
        let put = |number: u32| {
            let id = DocumentId::new(number.to_be_bytes().to_vec()).map_err(|_| StorageError::Refused)?;
            Ok(DocumentWrite::Put { id, body: BODY.to_vec().into(), only_if: OnlyIf::Always })
        };
        let batch = (first..first + self.batch).map(put).collect::<Result<Vec<_>, StorageError>>()?;
        let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: self.last };
        let began = scene.clock.now();
        if let Ok(BatchOutcome::Written) = scene.storage.write_documents(key, &fence, &batch).await {
            self.last = self.last.next();
            return Ok(Some(began.until(scene.clock.now()).as_secs_f64() * 1e3));
        }
        self.last = scene.storage.fence_state(key).await?.last;
        Ok(None)
    }
}
