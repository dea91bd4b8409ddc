//! [`Client`]: random calls on a few partitions, so that those of several clients meet. It waits for no TTL: claims
//! replace records of clients that work.

use super::{
    super::{TTL, network::LastNotApplied},
    history::{History, Outcome, Recorder},
};
use futures_util::future::BoxFuture;
use ielections::{
    DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, Holder, Incarnation, OnlyIf, Slot,
    Version,
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock as _, SystemClock};
use vvm_storage::{ElectionKey, Partition, SlotNumber, Step, SysVvmStorage};

pub(super) const SLOTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

pub(super) const NAME: &str = "histories";

/// The longest wait for an answer. Drivers answer earlier as a rule.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause between two calls is drawn below this. It bounds the size of a history.
const PAUSE: Duration = Duration::from_millis(4);

const DOCUMENTS: [&str; 3] = ["a", "b", "c"];

pub(super) type Open = Box<dyn Fn() -> BoxFuture<'static, Option<Arc<dyn SysVvmStorage>>> + Send + Sync>;

pub(super) struct Client {
    pub(super) number: usize,
    pub(super) open: Open,
    pub(super) history: Arc<History>,
    pub(super) clock: SystemClock,
    pub(super) not_applied: Option<Arc<LastNotApplied>>,
    pub(super) stops: watch::Receiver<bool>,
    pub(super) rng: fastrand::Rng,
}

pub(super) fn partitions() -> Vec<(String, Partition)> {
    let keys = SlotNumber::all(SLOTS).map(|slot| ElectionKey { cluster: NAME.into(), slot });
    keys.map(|key| (key.to_string(), key.partition())).collect()
}

pub(super) async fn read_all(recorder: &Recorder) {
    for (name, at) in &partitions() {
        recorder.read(name, at, PATIENCE).await;
        if recorder.storage.document_limits().is_some() {
            recorder.fence(name, at, PATIENCE).await;
            for id in DOCUMENTS.into_iter().filter_map(id) {
                recorder.document(name, at, &id, PATIENCE).await;
            }
        }
    }
}

fn id(of: &str) -> Option<DocumentId> {
    DocumentId::new(of.as_bytes().to_vec()).ok()
}

/// What a client knows of a partition by answers. Guards of its steps come from here alone.
#[derive(Clone, Default)]
struct Known {
    slot: Option<Slot>,
    /// Before the last change that the client saw: guards of steps that come too late.
    former: Option<Slot>,
    last: Option<DocumentVersion>,
    documents: [Option<DocumentVersion>; DOCUMENTS.len()],
}

impl Known {
    fn sees(&mut self, slot: Slot) {
        if self.slot.as_ref() != Some(&slot) {
            self.former = self.slot.replace(slot);
        }
    }
}

impl Client {
    pub(super) async fn run(mut self) {
        let partitions = partitions();
        let mut known = vec![Known::default(); partitions.len()];
        let mut recorder: Option<Recorder> = None;
        while !*self.stops.borrow() {
            self.clock.sleep(PAUSE.mul_f64(self.rng.f64())).await;
            let Some(open) = &recorder else {
                recorder = self.opened().await;
                continue;
            };
            let index = self.rng.usize(..partitions.len());
            let (name, at) = &partitions[index];
            let goes_on = self.call(open, name, at, &mut known[index]).await;
            // A handle may be useless for good, such as after its storage was replaced.
            if !goes_on && self.rng.u8(..4) == 0 || self.rng.u16(..2000) == 0 {
                open.storage.close().await;
                recorder = None;
            }
        }
        if let Some(open) = recorder {
            open.storage.close().await;
        }
    }

    async fn opened(&self) -> Option<Recorder> {
        let storage = (self.open)().await?;
        let (history, clock) = (Arc::clone(&self.history), self.clock.clone());
        let not_applied = self.not_applied.clone();
        Some(Recorder { client: self.number, storage, history, clock, not_applied })
    }

    /// Makes one call. Whether the handle answered.
    async fn call(&mut self, recorder: &Recorder, name: &str, at: &Partition, known: &mut Known) -> bool {
        let patience =
            if self.rng.u8(..50) == 0 { PATIENCE.mul_f64(self.rng.f64() / 1000.0) } else { PATIENCE };
        let limits = recorder.storage.document_limits();
        let step = match self.rng.u8(..10) {
            0 if limits.is_some() => {
                let which = self.rng.usize(..DOCUMENTS.len());
                let Some(id) = id(DOCUMENTS[which]) else { return false };
                let Some(shown) = recorder.document(name, at, &id, patience).await else { return false };
                known.documents[which] = shown.map(|document| document.version);
                return true;
            }
            1 => None,
            _ => self.step(known, limits.is_some()),
        };
        let Some(step) = step else {
            let (slot, last) = if limits.is_some() && self.rng.bool() {
                let Some(state) = recorder.fence(name, at, patience).await else { return false };
                (state.slot, Some(state.last))
            } else {
                let Some(slot) = recorder.read(name, at, patience).await else { return false };
                (slot, known.last)
            };
            known.sees(slot);
            known.last = last;
            return true;
        };
        let outcome = recorder.commit(name, at, step.clone(), patience).await;
        match &outcome {
            Outcome::Applied => match step {
                Step::Claim { to, .. } | Step::Renew { to, .. } => {
                    known.sees(Slot::Held { entry: to, proven_age: None });
                }
                Step::Batch { fence, .. } => known.last = Some(fence.after.next()),
                _ => known.slot = None,
            },
            Outcome::Refused(Some(slot)) => known.sees(slot.clone()),
            Outcome::Refused(None) | Outcome::Unknown => {
                *known = Known { former: known.former.take(), ..Known::default() }
            }
            Outcome::NotApplied => {}
        }
        matches!(outcome, Outcome::Applied | Outcome::Refused(_))
    }

    /// Draws a step on what the client knows, one in eight on what stood before. `None` if a read must come first.
    fn step(&mut self, known: &Known, with_documents: bool) -> Option<Step> {
        let is_late = self.rng.u8(..8) == 0;
        let slot = if is_late { known.former.as_ref() } else { known.slot.as_ref() }?;
        let Some(entry) = slot.entry() else { return self.claim(slot) };
        let is_own = entry.holder.as_str().starts_with(&self.holder(""));
        match self.rng.u8(..100) {
            0..5 => self.claim(slot),
            // Steps of a client in the name of another one are as good for the check, but would end each term early.
            _ if !is_own && self.rng.u8(..10) != 0 => None,
            5..45 => {
                // Larger than that of every record that stood before.
                let write = self.history.next_write();
                let holder = Holder::new(self.holder(&write.to_string())).ok()?;
                let to = Entry { holder, ..entry.renewed(Version { write, ..entry.version }) };
                Some(Step::renew(entry, &to))
            }
            45..55 => Some(Step::release(entry.incarnation(), entry.epoch)),
            _ if with_documents => {
                let fence =
                    Fence { epoch: entry.epoch, incarnation: entry.incarnation(), after: known.last? };
                Some(Step::batch(&fence, &self.writes(known)))
            }
            _ => None,
        }
    }

    fn claim(&mut self, from: &Slot) -> Option<Step> {
        let mut bytes = [0; 16];
        self.rng.fill(&mut bytes);
        let to = Entry {
            holder: Holder::new(self.holder("0")).ok()?,
            version: Version { incarnation: Incarnation::from_bytes(bytes), write: 0 },
            ttl: TTL,
            epoch: Epoch::following(from.last_epoch(), Duration::ZERO).ok()?,
        };
        Some(Step::claim(from, &to))
    }

    fn writes(&mut self, known: &Known) -> Vec<DocumentWrite> {
        let mut writes = Vec::new();
        for (which, name) in DOCUMENTS.into_iter().enumerate() {
            let Some(id) = id(name).filter(|_| self.rng.bool()) else { continue };
            let only_if = match (self.rng.u8(..3), known.documents[which]) {
                (0, Some(version)) => OnlyIf::Version(version),
                (0, None) => OnlyIf::Absent,
                _ => OnlyIf::Always,
            };
            writes.push(match self.rng.u8(..4) {
                0 => DocumentWrite::Delete { id, only_if },
                _ => DocumentWrite::Put { id, body: self.rng.u32(..).to_string().into(), only_if },
            });
        }
        writes
    }

    fn holder(&self, suffix: &str) -> String {
        format!("client-{}.{suffix}", self.number)
    }
}
