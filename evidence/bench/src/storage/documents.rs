//! Documents a second, of leaders that write one batch of 32 after the other.

use super::{Scene, StorageError};
use crate::report::{Figure, Unit};
use futures_util::future::try_join_all;
use ielections::{
    BatchOutcome, Claim, DocumentId, DocumentStorage, DocumentVersion, DocumentWrite, Entry, Fence, OnlyIf,
    TtlStorage, Vacant,
};
use std::time::Duration;
use vvm_clock::{Instant, SystemClock};
use vvm_storage::ElectionKey;

const BATCH: u32 = 32;
/// Bytes of a document, as of the state of a small job.
const BODY_BYTES: usize = 200;
/// How many documents a leader writes again and again.
const DOCUMENTS: u32 = 4_096;
/// The first slot of this part.
const FIRST_SLOT: u32 = 30_000;

pub(super) async fn measure(scene: &Scene, quick: bool) -> Result<Vec<Figure>, StorageError> {
    let span = Duration::from_secs(if quick { 1 } else { 10 });
    let mut figures = Vec::new();
    for leaders in [1, 8] {
        let first_slot = FIRST_SLOT + leaders * 100;
        let keys = (first_slot..first_slot + leaders).map(|slot| scene.key(slot));
        let leaders_at_work = try_join_all(keys.map(|key| Leader::claim(scene, key))).await?;
        let began = SystemClock::read();
        let until = began.after(span);
        let millis = try_join_all(leaders_at_work.iter().map(|leader| leader.write(until))).await?;
        let took = began.until(SystemClock::read()).as_secs_f64();
        for leader in &leaders_at_work {
            let Entry { version, epoch, .. } = &leader.held;
            scene.storage.compare_and_delete(&leader.key, version.incarnation, *epoch).await?;
        }
        let millis: Vec<f64> = millis.into_iter().flatten().collect();
        let documents = millis.len() as f64 * f64::from(BATCH);
        let name = |what| format!("{leaders} writing batches of {BATCH}: {what}");
        figures.push(Figure::new(name("documents"), Unit::PerSecond, vec![documents / took]));
        figures.push(Figure::new(name("each batch"), Unit::Milliseconds, millis));
    }
    Ok(figures)
}

/// One leader without an engine, which would write one batch after the other, too.
struct Leader<'scene> {
    scene: &'scene Scene,
    documents: &'scene dyn DocumentStorage<ElectionKey>,
    key: ElectionKey,
    held: Entry,
}

impl<'scene> Leader<'scene> {
    async fn claim(scene: &'scene Scene, key: ElectionKey) -> Result<Self, StorageError> {
        let (held, documents) = (scene.entry()?, scene.storage.documents().ok_or(StorageError::NoDocuments)?);
        match scene.storage.insert_if_not_exist(&key, Vacant::default(), &held).await? {
            Claim::Claimed => Ok(Self { scene, documents, key, held }),
            Claim::Refused(_) => Err(StorageError::Refused),
        }
    }

    /// The time of each batch, in milliseconds.
    async fn write(&self, until: Instant) -> Result<Vec<f64>, StorageError> {
        let (mut millis, mut next) = (Vec::new(), 0);
        let mut after = DocumentVersion::NONE;
        loop {
            let began = self.scene.clock.now();
            if began >= until {
                return Ok(millis);
            }
            let batch: Result<Vec<_>, _> = (next..next + BATCH).map(put).collect();
            let fence = Fence { epoch: self.held.epoch, incarnation: self.held.incarnation(), after };
            if self.documents.write_documents(&self.key, &fence, &batch?).await? != BatchOutcome::Written {
                return Err(StorageError::Refused);
            }
            millis.push(began.until(self.scene.clock.now()).as_secs_f64() * 1e3);
            (after, next) = (after.next(), (next + BATCH) % DOCUMENTS);
        }
    }
}

fn put(number: u32) -> Result<DocumentWrite, StorageError> {
    let id = DocumentId::new(format!("job-{number:08}").into_bytes())?;
    Ok(DocumentWrite::Put { id, body: vec![b'x'; BODY_BYTES].into(), only_if: OnlyIf::Always })
}
