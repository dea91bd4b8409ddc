//! The history of a slot: its last leaderships, in a fenced document beside the record, for people. Only the leader can
//! write it. It never delays work: the start is written while services run, the end within a short time, or with the
//! next start of the same process. A process that leads no more has its end in a partition of its own ([`LateEnd`]),
//! which readers and the next leaders add. The next leader completes an entry without an end. Starts come from wall
//! clocks, and may contradict each other: entries are ordered by epoch.

use ielections::{
    Document, DocumentId, DocumentStorage, DocumentWrite, Documents, Epoch, Fence, Incarnation, OnlyIf,
    ReadError, Standing, Ttl, env::caught,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock as _};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, LateEnd, SlotNumber};

const KEPT: usize = 64;

pub(crate) const REASON: usize = 200;

/// How many bytes an end may add to an entry: JSON may need six for one of a reason.
pub(crate) const END: usize = 6 * REASON + 64;

/// The document's id. It lacks the byte that ends a collection's name, so no instance has the same id.
const ID: &[u8] = b"vvm-history";

/// Returns how long writing the end may delay the release: 2 s, or a tenth of a short TTL. With a storage
/// that takes longer for a read and a write, the release itself would take as long.
pub(crate) fn end_timeout(ttl: Ttl) -> Duration {
    Duration::from_secs(2).min(ttl.get() / 10)
}

/// One leadership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastLeadership {
    /// The leader's name.
    pub holder: String,
    /// Its fencing token.
    pub epoch: u64,
    /// Milliseconds since 1970, on the leader's wall clock.
    pub started_ms: u64,
    /// When it ended, or when the next leader started; `None` while it lasts. Never before the start: the
    /// leader measures how long it led by a clock that does not jump.
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub end: Option<String>,
}

impl PastLeadership {
    pub(crate) fn late_end(&self) -> Option<LateEnd> {
        Some(LateEnd { epoch: self.epoch, ended_ms: self.ended_ms?, reason: self.end.clone()? })
    }
}

/// Adds what the leader itself has recorded about its end. It knows better than the next leader.
fn complete(history: &mut [PastLeadership], late: Option<LateEnd>) {
    let Some(LateEnd { epoch, ended_ms, reason }) = late else { return };
    for past in history.iter_mut().filter(|past| past.epoch == epoch) {
        (past.ended_ms, past.end) = (Some(ended_ms.max(past.started_ms)), Some(reason.clone()));
    }
}

pub(crate) struct HistoryWriter {
    documents: Option<Documents>,
    storage: Arc<ElectionsTtlStorage>,
    key: ElectionKey,
    own: PastLeadership,
    clock: Arc<dyn Clock>,
    began: Instant,
    unwritten: UnwrittenEnds,
    /// It leads as the successor of a leader that it heard last so long before.
    succeeded_after: Option<Duration>,
}

/// Leaderships of this process whose ends could not be written: the storage did not answer, or another
/// process led already. They are written with the next start in their slot, as each slot has its own history.
pub(crate) type UnwrittenEnds = Arc<Mutex<BTreeMap<SlotNumber, Vec<PastLeadership>>>>;

impl HistoryWriter {
    /// Writes nothing if the storage has no documents.
    pub(crate) fn new(
        (storage, key): (&Arc<ElectionsTtlStorage>, &ElectionKey),
        standing: &Standing,
        holder: &str,
        clock: &Arc<dyn Clock>,
        unwritten: &UnwrittenEnds,
    ) -> Self {
        let (holder, epoch) = (holder.to_owned(), standing.epoch().get());
        let own = PastLeadership { holder, epoch, started_ms: unix_ms(), ended_ms: None, end: None };
        let (documents, unwritten) = (standing.documents(), Arc::clone(unwritten));
        let (storage, key) = (Arc::clone(storage), key.clone());
        let (clock, began, succeeded_after) = (Arc::clone(clock), clock.now(), None);
        Self { documents, storage, key, own, clock, began, unwritten, succeeded_after }
    }

    /// Has the next leader's entry say that it was the successor.
    pub(crate) fn after_loss(self, succeeded_after: Option<Duration>) -> Self {
        Self { succeeded_after, ..self }
    }

    pub(crate) async fn write_start(&self) {
        self.write(self.own.clone()).await;
    }

    /// Writes the end, or gives up after `timeout`: then the next start of this process in this slot writes it.
    /// Must come before the release: afterwards the fence refuses the write.
    pub(crate) async fn write_end(&self, how: &str, timeout: Duration) {
        let ended = self.ended(how);
        let is_written = tokio::select! {
            biased;
            is_written = self.write(ended.clone()) => is_written,
            () = self.clock.sleep(timeout) => {
                tracing::debug!("the end was not written to the history in time");
                false
            }
        };
        if is_written {
            return;
        }
        let mut unwritten = self.unwritten.lock();
        let unwritten = unwritten.entry(self.key.slot).or_default();
        unwritten.push(ended);
        let surplus = unwritten.len().saturating_sub(KEPT);
        unwritten.drain(..surplus);
    }

    fn ended(&self, how: &str) -> PastLeadership {
        let ended_ms = Some(later_ms(self.own.started_ms, self.clock.now().since(self.began)));
        PastLeadership { ended_ms, end: Some(shortened(how)), ..self.own.clone() }
    }

    async fn write(&self, own: PastLeadership) -> bool {
        let Some(documents) = &self.documents else { return true };
        let Ok(id) = DocumentId::new(ID) else { return true };
        // Only for people: without it, the history is as good as before.
        let late = caught(self.storage.late_end(&self.key));
        let late = async { Ok(late.await.ok().and_then(Result::ok).flatten()) };
        // After a loss the first fails at once. The work has stopped, and no other read may delay the release.
        let known = match tokio::try_join!(documents.get(&id), late) {
            Ok((document, late)) => {
                let mut known = decode(document.as_ref());
                complete(&mut known, late);
                known
            }
            Err(refusal) => {
                tracing::debug!(%refusal, "the history can't be read");
                return false;
            }
        };
        let mut history = self.with(known, own);
        drop_oldest(&mut history, documents.limits().max_body_bytes);
        if let Err(refusal) = documents.write(vec![put(id, &history)]).await {
            tracing::debug!(%refusal, "the history can't be written");
            return false;
        }
        self.unwritten.lock().remove(&self.key.slot);
        true
    }

    fn with(&self, mut history: Vec<PastLeadership>, own: PastLeadership) -> Vec<PastLeadership> {
        let unwritten = self.unwritten.lock().get(&self.key.slot).cloned().unwrap_or_default();
        history
            .retain(|past| past.epoch < own.epoch && unwritten.iter().all(|known| known.epoch != past.epoch));
        history.extend(unwritten);
        history.sort_by_key(|past| past.epoch);
        for past in history.iter_mut().filter(|past| past.ended_ms.is_none()) {
            past.ended_ms = Some(own.started_ms.max(past.started_ms));
            let (holder, unknown) = (&own.holder, "its end was not recorded");
            past.end = Some(match self.succeeded_after {
                None => format!("{unknown}; followed by {holder}"),
                Some(silent) => format!(
                    "{unknown}; taken over by the successor {holder}, {:.1} s after it was heard last",
                    silent.as_secs_f64()
                ),
            });
        }
        history.push(own);
        let surplus = history.len().saturating_sub(KEPT);
        history.drain(..surplus);
        history
    }
}

/// Removes the oldest entries of a history that would not fit into a document of so many bytes: 39 KiB on
/// Kubernetes, 64 KiB on Cassandra. The end of the last one may still be added, also by another process.
fn drop_oldest(history: &mut Vec<PastLeadership>, most: usize) {
    let bytes = |past: &PastLeadership| serde_json::to_vec(past).unwrap_or_default().len() + 1;
    let mut all = 1 + history.iter().map(bytes).sum::<usize>();
    let too_old = history.iter().take_while(|past| {
        let is_too_much = all > most.saturating_sub(END);
        all -= bytes(past);
        is_too_much
    });
    let too_old = too_old.count().min(history.len().saturating_sub(1));
    history.drain(..too_old);
}

/// Writes how the leadership of a dead process ended and how long it lasted, unless it has an end already.
/// Does nothing if the storage fails, or the leadership's fence has fallen.
pub(crate) async fn write_end_of(
    documents: &dyn DocumentStorage<ElectionKey>,
    key: &ElectionKey,
    (epoch, incarnation): (Epoch, Incarnation),
    (how, lasted): (&str, Duration),
) {
    let Ok(id) = DocumentId::new(ID) else { return };
    let Ok(state) = documents.fence_state(key).await else { return };
    let Ok(document) = documents.document(key, &id).await else { return };
    let mut history = decode(document.as_ref());
    let is_open = |past: &&mut PastLeadership| past.epoch == epoch.get() && past.end.is_none();
    let Some(past) = history.iter_mut().find(is_open) else { return };
    (past.ended_ms, past.end) = (Some(later_ms(past.started_ms, lasted)), Some(shortened(how)));
    let fence = Fence { epoch, incarnation, after: state.last };
    if let Err(refusal) = documents.write_documents(key, &fence, &[put(id, &history)]).await {
        tracing::debug!(%refusal, "the history can't be written");
    }
}

pub(crate) fn later_ms(started_ms: u64, lasted: Duration) -> u64 {
    started_ms.saturating_add(u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX))
}

fn put(id: DocumentId, history: &[PastLeadership]) -> DocumentWrite {
    let body = serde_json::to_vec(history).unwrap_or_default();
    DocumentWrite::Put { id, body: body.into(), only_if: OnlyIf::Always }
}

pub(crate) fn shortened(how: &str) -> String {
    const CUT: char = '…';
    if how.len() <= REASON {
        return how.to_owned();
    }
    let kept = how.floor_char_boundary(REASON - CUT.len_utf8());
    format!("{}{CUT}", &how[..kept])
}

/// Reads the history of a slot, oldest leadership first. Cancel safe.
pub async fn read(
    storage: &ElectionsTtlStorage,
    key: &ElectionKey,
) -> Result<Vec<PastLeadership>, ReadError> {
    let Ok(id) = DocumentId::new(ID) else { return Ok(Vec::new()) };
    let mut history = decode(storage.document(key, &id).await?.as_ref());
    complete(&mut history, storage.late_end(key).await?);
    Ok(history)
}

/// Returns an empty history if the document can't be decoded, as one of a later version: it is only for people.
fn decode(document: Option<&Document>) -> Vec<PastLeadership> {
    document.and_then(|document| serde_json::from_slice(&document.body).ok()).unwrap_or_default()
}

pub(crate) fn unix_ms() -> u64 {
    u64::try_from(SystemWallClock.since_unix_epoch().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::key;
    use ielections::{Candidacy, Elections, Holder, Terms, testing::env};
    use std::num::NonZeroU32;
    use testing_time::MockClock;
    use vvm_storage::{ElectionsTtlStorage, mem::MemDatabase};

    fn writer(epoch: u64) -> HistoryWriter {
        let (holder, started_ms) = (format!("holder {epoch}"), epoch * 10);
        let own = PastLeadership { holder, epoch, started_ms, ended_ms: None, end: None };
        let clock = Arc::new(MockClock::new()) as Arc<dyn Clock>;
        let storage = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&clock)).open()));
        let (key, unwritten) = (key(), UnwrittenEnds::default());
        let (began, succeeded_after) = (clock.now(), None);
        HistoryWriter { documents: None, storage, key, own, began, clock, unwritten, succeeded_after }
    }

    fn led(writer: &HistoryWriter, history: Vec<PastLeadership>) -> Vec<PastLeadership> {
        writer.with(history, writer.own.clone())
    }

    #[test]
    fn next_leader_completes_an_entry_without_an_end() {
        let first = led(&writer(1), Vec::new());
        assert_eq!((first[0].ended_ms, &first[0].end), (None, &None));
        let second = led(&writer(2), first);
        assert_eq!(second[0].ended_ms, Some(20));
        assert_eq!(second[0].end.as_deref(), Some("its end was not recorded; followed by holder 2"));
        let ended = writer(2).with(second, writer(2).ended("released"));
        assert_eq!((ended.len(), ended[1].end.as_deref()), (2, Some("released")));
        let third = led(&writer(3), ended);
        assert_eq!(third[1].end.as_deref(), Some("released"));
        let fourth = led(&writer(4).after_loss(Some(Duration::from_millis(5_120))), third);
        let succeeded =
            "its end was not recorded; taken over by the successor holder 4, 5.1 s after it was heard last";
        assert_eq!(fourth[2].end.as_deref(), Some(succeeded));
    }

    #[test]
    fn end_is_never_before_the_start() {
        let clock = MockClock::new();
        let mut late = writer(1);
        (late.clock, late.began) = (Arc::new(clock.clone()), clock.now());
        clock.advance(Duration::from_millis(7));
        assert_eq!(late.ended("released").ended_ms, Some(late.own.started_ms + 7));
        let mut next = writer(2);
        next.own.started_ms = 3;
        assert_eq!(led(&next, led(&late, Vec::new()))[0].ended_ms, Some(late.own.started_ms));
    }

    #[test]
    fn end_that_could_not_be_written_is_written_with_the_next_start() {
        let history = led(&writer(3), led(&writer(1), Vec::new()));
        let next = writer(4);
        let ends = vec![writer(1).ended("lost"), writer(2).ended("lost at once")];
        next.unwritten.lock().insert(next.key.slot, ends);
        let ends = led(&next, history).into_iter().map(|past| past.end).collect::<Vec<_>>();
        let unknown = "its end was not recorded; followed by holder 4";
        let expected = [Some("lost"), Some("lost at once"), Some(unknown), None];
        assert_eq!(ends, expected.map(|end| end.map(str::to_owned)));
    }

    #[tokio::test]
    async fn end_that_could_not_be_written_is_kept_for_the_history_of_its_slot() {
        let mock = MockClock::new();
        let time: Arc<dyn Clock> = Arc::new(mock.clone());
        let storage = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&time)).open()));
        let elections = Elections::new(Arc::clone(&storage) as _, env(&mock));
        let unwritten = UnwrittenEnds::default();
        unwritten.lock().insert(SlotNumber::FIRST, vec![writer(1).ended("lost")]);
        let mut found = Vec::new();
        for number in [2, 1] {
            let slot = SlotNumber::new(NonZeroU32::new(number).unwrap());
            let key = ElectionKey { cluster: "payroll".into(), slot };
            let terms = Terms::new(Holder::new("here").unwrap(), Ttl::DEFAULT);
            let candidacy = Candidacy { slots: vec![key.clone()], terms };
            let (_, leadership) = elections.acquire(candidacy).await.unwrap();
            let at = (&storage, &key);
            HistoryWriter::new(at, leadership.standing(), "here", &time, &unwritten).write_start().await;
            let history = read(&storage, &key).await.unwrap();
            found.push(history.into_iter().map(|past| past.end).collect::<Vec<_>>());
            leadership.release().await;
        }
        assert_eq!(found, [vec![None], vec![Some("lost".into()), None]]);
        assert!(unwritten.lock().is_empty());
    }

    #[test]
    fn history_is_bounded_in_entries_and_bytes() {
        let bytes = |history: &Vec<PastLeadership>| serde_json::to_vec(history).unwrap().len();
        let mut history = Vec::new();
        for epoch in 1..=200 {
            let mut writer = writer(epoch);
            writer.own.holder = "\u{1}".repeat(255);
            history = writer.with(history, writer.ended(&"\u{1f600}".repeat(10_000)));
        }
        assert_eq!((history.len(), history[0].epoch), (KEPT, 137));
        let end = history[0].end.as_deref().unwrap();
        assert!(end.len() <= REASON && end.ends_with('…'), "{end}");
        let unbounded = history.clone();
        drop_oldest(&mut history, bytes(&unbounded) + END);
        assert_eq!(history, unbounded);
        // The smallest documents of a storage that hosts use, those of Kubernetes, and an end that is added.
        let most = 39 << 10;
        for most in [most, bytes(&unbounded) + END - 1] {
            drop_oldest(&mut history, most);
            history.last_mut().unwrap().end = None;
            let open = bytes(&history);
            history.last_mut().unwrap().end = Some(shortened(&"\u{1}".repeat(10_000)));
            assert!(bytes(&history) <= most && bytes(&history) - open < END, "{most}");
            assert!(history.len() > 10 && history.last().is_some_and(|past| past.epoch == 200));
            history.clone_from(&unbounded);
        }
    }
}
