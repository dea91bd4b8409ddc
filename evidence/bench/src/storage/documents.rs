//! Leaders that write documents as fast as they can and renew: documents a second, and the time of renewals.
//! A leader's renewals wait for none of its own batches; those of several leaders compete at the database.

use super::{Leader, REFUSED, Scene};
use crate::report::{Failure, Figure, Unit};
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

pub(super) async fn measure_beside_renewals(scene: &Scene, quick: bool) -> Result<Vec<Figure>, Failure> {
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

/// Measures documents a second of leaders that write one batch after the other, and do not renew.
pub(super) async fn measure(scene: &Scene, quick: bool) -> Result<Vec<Figure>, Failure> {
    if TtlStorage::documents(&*scene.storage).is_none() {
        return Err("this storage keeps no documents".into());
    }
    let span = Duration::from_secs(if quick { 1 } else { 10 });
    let mut figures = Vec::new();
    for leaders in [1, 8] {
        let load = Load { leaders, batch: 32 };
        let mut writers = load.writers(scene, FIRST_SLOT + leaders * 100).await?;
        let began = SystemClock::read();
        let until = began.after(span);
        let each = writers.iter_mut().map(|writer| writer.write(until, u64::MAX));
        let tally = Tally::sum(try_join_all(each).await?);
        let took = began.until(SystemClock::read()).as_secs_f64();
        for writer in &writers {
            writer.leader.release().await?;
        }
        if tally.batches_unconfirmed > 0.0 {
            return Err(REFUSED.into());
        }
        let written = tally.batches.len() as f64 * f64::from(load.batch);
        figures.push(Figure::new(load.name("documents"), Unit::PerSecond, vec![written / took]));
        figures.push(Figure::new(load.name("each batch"), Unit::Milliseconds, tally.batches));
    }
    Ok(figures)
}

impl Load {
    fn name(self, what: &str) -> String {
        format!("{} writing batches of {}: {what}", self.leaders, self.batch)
    }

    async fn writers(self, scene: &Scene, first_slot: u32) -> Result<Vec<Writer<'_>>, Failure> {
        let mut writers = Vec::new();
        for slot in first_slot..first_slot + self.leaders {
            let leader = Leader::claim(scene, scene.key(slot)).await?;
            writers.push(Writer { leader, load: self, last: DocumentVersion::NONE });
        }
        Ok(writers)
    }

    async fn measure(self, scene: &Scene, first_slot: u32, quick: bool) -> Result<Vec<Figure>, Failure> {
        let span = Duration::from_secs(if quick { 2 } else { 20 });
        let mut writers = self.writers(scene, first_slot).await?;
        let until = SystemClock::read().after(span);
        let idle = Tally::sum(try_join_all(writers.iter_mut().map(|writer| writer.idle(until))).await?);
        let began = SystemClock::read();
        let until = began.after(span);
        let each = writers.iter_mut().map(|writer| writer.write(until, BATCHES_A_RENEWAL));
        let busy = Tally::sum(try_join_all(each).await?);
        let took = began.until(SystemClock::read()).as_secs_f64();
        for writer in &writers {
            writer.leader.release().await?;
        }
        let name = |what| self.name(what);
        let written = busy.batches.len() as f64 * f64::from(self.batch);
        let slower = percentile(&busy.renewals) / percentile(&idle.renewals);
        let slower = Figure::new(name("p99 of renewals, by that without"), Unit::Ratio, vec![slower]);
        let rate = Figure::new(name("documents"), Unit::PerSecond, vec![written / took]);
        let networked = !matches!(scene.scheme.as_str(), "sqlite" | "mem");
        let none = |what, count| Figure::new(name(what), Unit::Count, vec![count]).max_at_most(0.0);
        Ok(vec![
            if networked { rate.median_at_least(GOAL) } else { rate },
            Figure::new(name("each batch"), Unit::Milliseconds, busy.batches),
            none("batches not confirmed", busy.batches_unconfirmed),
            Figure::new(name("renewals meanwhile"), Unit::Milliseconds, busy.renewals),
            Figure::new(name("renewals without"), Unit::Milliseconds, idle.renewals),
            if networked { slower.max_at_most(SLOWER) } else { slower },
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
    load: Load,
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
    async fn idle(&mut self, until: Instant) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        while self.leader.scene.clock.now() < until {
            tally.renewed(self.leader.renew().await?);
            self.leader.scene.clock.sleep(PACE).await;
        }
        Ok(tally)
    }

    /// Renews after so many batches.
    async fn write(&mut self, until: Instant, batches: u64) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        while self.leader.scene.clock.now() < until {
            match self.write_batch().await? {
                Some(millis) => tally.batches.push(millis),
                None => tally.batches_unconfirmed += 1.0,
            }
            if self.last.get().is_multiple_of(batches) {
                tally.renewed(self.leader.renew().await?);
            }
        }
        Ok(tally)
    }

    /// Returns its time; `None` if it was not confirmed. The next one continues from what a read shows.
    async fn write_batch(&mut self) -> Result<Option<f64>, Failure> {
        let Leader { scene, key, held, .. } = &self.leader;
        let batch = self.load.batch;
        let first = (self.last.get() as u32).wrapping_mul(batch) % DOCUMENTS;
        let put = |number: u32| {
            let id = DocumentId::new(number.to_be_bytes().to_vec())?;
            Ok(DocumentWrite::Put { id, body: BODY.to_vec().into(), only_if: OnlyIf::Always })
        };
        let batch = (first..first + batch).map(put).collect::<Result<Vec<_>, Failure>>()?;
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
