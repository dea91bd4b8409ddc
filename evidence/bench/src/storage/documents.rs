//! Leaders that write documents as fast as they can, one batch after the other: documents a second.

use super::Leader;
use crate::{
    report::{Failure, Figure, Unit},
    setup::{REFUSED, Scene},
};
use futures_util::future::try_join_all;
use ielections::{
    BatchOutcome, DocumentId, DocumentStorage, DocumentVersion, DocumentWrite, Fence, OnlyIf, TtlStorage,
};
use std::time::Duration;
use vvm_clock::{Instant, SystemClock};

/// The first slot of this part.
const FIRST_SLOT: u32 = 30_000;
/// How many documents a batch has.
const BATCH: u32 = 32;
/// Bytes of a document, as of the state of a task.
const BODY: [u8; 256] = [b'x'; 256];
/// How many documents each leader has, which it writes in turn.
const DOCUMENTS: u32 = 1024;

/// Measures documents a second of one leader and of eight, which do not renew.
pub(super) async fn measure(scene: &Scene, quick: bool) -> Result<Vec<Figure>, Failure> {
    if TtlStorage::documents(&*scene.storage).is_none() {
        return Err("this storage keeps no documents".into());
    }
    let span = Duration::from_secs(if quick { 1 } else { 10 });
    let mut figures = Vec::new();
    for leaders in [1, 8] {
        let mut writers = Vec::new();
        for slot in 0..leaders {
            let leader = Leader::claim(scene, scene.key(FIRST_SLOT + leaders * 100 + slot)).await?;
            writers.push(Writer { leader, last: DocumentVersion::NONE });
        }
        let began = SystemClock::read();
        let until = began.after(span);
        let each = writers.iter_mut().map(|writer| writer.write(until));
        let batches = try_join_all(each).await?.concat();
        let took = began.until(SystemClock::read()).as_secs_f64();
        for writer in &writers {
            writer.leader.release().await?;
        }
        let name = |what| format!("{leaders} writing batches of {BATCH}: {what}");
        let written = batches.len() as f64 * f64::from(BATCH);
        figures.push(Figure::new(name("documents"), Unit::PerSecond, vec![written / took]));
        figures.push(Figure::new(name("each batch"), Unit::Milliseconds, batches));
    }
    Ok(figures)
}

/// One leader, which does one thing after the other, as a document writer does.
struct Writer<'scene> {
    leader: Leader<'scene>,
    last: DocumentVersion,
}

impl Writer<'_> {
    /// Returns the milliseconds of each batch.
    async fn write(&mut self, until: Instant) -> Result<Vec<f64>, Failure> {
        let mut batches = Vec::new();
        while self.leader.scene.clock.now() < until {
            batches.push(self.write_batch().await?);
        }
        Ok(batches)
    }

    async fn write_batch(&mut self) -> Result<f64, Failure> {
        let Leader { scene, key, held, .. } = &self.leader;
        let first = (self.last.get() as u32).wrapping_mul(BATCH) % DOCUMENTS;
        let put = |number: u32| {
            let id = DocumentId::new(number.to_be_bytes().to_vec())?;
            Ok(DocumentWrite::Put { id, body: BODY.to_vec().into(), only_if: OnlyIf::Always })
        };
        let batch = (first..first + BATCH).map(put).collect::<Result<Vec<_>, Failure>>()?;
        let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: self.last };
        let began = scene.clock.now();
        match scene.storage.write_documents(key, &fence, &batch).await? {
            BatchOutcome::Written => self.last = self.last.next(),
            BatchOutcome::Refused => return Err(REFUSED.into()),
        }
        Ok(began.until(scene.clock.now()).as_secs_f64() * 1e3)
    }
}
