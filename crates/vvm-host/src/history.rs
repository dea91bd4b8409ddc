//! The history of a slot: its last leaderships, in a fenced document beside the record, for people.
//!
//! Only the leader can write it. It never delays work: the start is written while services run, the end
//! within a short time or not at all. The next leader completes an entry without an end. Times come from
//! wall clocks and may contradict each other; entries are in the order of their epochs.

use ielections::{
    Document, DocumentId, DocumentStorage, DocumentWrite, Documents, Epoch, Fence, Incarnation, OnlyIf,
    ReadError, Standing, Ttl,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemWallClock, WallClock as _};
use vvm_storage::ElectionKey;

/// How many leaderships are kept: 64 kB with the longest names and reasons.
const KEPT: usize = 64;

/// The longest reason that is kept, in bytes.
const REASON: usize = 400;

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
    /// When it ended, or when the next leader started; `None` while it lasts.
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub end: Option<String>,
}

/// Writes the history of a slot for its leader.
pub(crate) struct HistoryWriter {
    documents: Option<Documents>,
    own: PastLeadership,
}

impl HistoryWriter {
    /// Writes under `standing`. Writes nothing if the storage has no documents.
    pub(crate) fn new(standing: &Standing, holder: &str) -> Self {
        let (holder, epoch) = (holder.to_owned(), standing.epoch().get());
        let own = PastLeadership { holder, epoch, started_ms: now(), ended_ms: None, end: None };
        Self { documents: standing.documents(), own }
    }

    /// Writes the start, and completes earlier entries that have no end.
    ///
    /// # Cancel safety
    /// Dropped, the entry is written or not.
    pub(crate) async fn write_start(&self) {
        self.write(None).await;
    }

    /// Writes the end, or gives up after `timeout`. Must come before the release: afterwards the fence
    /// refuses the write.
    ///
    /// # Cancel safety
    /// Dropped, the entry is written or not.
    pub(crate) async fn write_end(&self, how: &str, clock: &Arc<dyn Clock>, timeout: Duration) {
        tokio::select! {
            biased;
            () = self.write(Some(how)) => {}
            () = clock.sleep(timeout) => tracing::debug!("the end was not written to the history in time"),
        }
    }

    async fn write(&self, end: Option<&str>) {
        let Some(documents) = &self.documents else { return };
        let Ok(id) = DocumentId::new(ID) else { return };
        let known = match documents.get(&id).await {
            Ok(document) => decode(document.as_ref()),
            Err(refusal) => return tracing::debug!(%refusal, "the history can't be read"),
        };
        if let Err(refusal) = documents.write(vec![put(id, &self.with(known, end))]).await {
            tracing::debug!(%refusal, "the history can't be written");
        }
    }

    /// Returns the history with this leadership as its last entry.
    fn with(&self, mut history: Vec<PastLeadership>, end: Option<&str>) -> Vec<PastLeadership> {
        let own = &self.own;
        history.retain(|past| past.epoch < own.epoch);
        for past in history.iter_mut().filter(|past| past.ended_ms.is_none()) {
            past.ended_ms = Some(own.started_ms);
            past.end = Some(format!("ended without a word; followed by {}", own.holder));
        }
        let (ended_ms, end) = (end.map(|_| now()), end.map(shortened));
        history.push(PastLeadership { ended_ms, end, ..own.clone() });
        let surplus = history.len().saturating_sub(KEPT);
        history.drain(..surplus);
        history
    }
}

/// Writes `how` the leadership of a dead process ended, unless it has an end already. Does nothing if the
/// storage fails, or the leadership's fence has fallen.
///
/// # Cancel safety
/// Dropped, the end is written or not.
pub(crate) async fn write_end_of(
    documents: &dyn DocumentStorage<ElectionKey>,
    key: &ElectionKey,
    (epoch, incarnation): (Epoch, Incarnation),
    how: &str,
) {
    let Ok(id) = DocumentId::new(ID) else { return };
    let Ok(state) = documents.fence_state(key).await else { return };
    let Ok(mut history) = read(documents, key).await else { return };
    let is_open = |past: &&mut PastLeadership| past.epoch == epoch.get() && past.end.is_none();
    let Some(past) = history.iter_mut().find(is_open) else { return };
    (past.ended_ms, past.end) = (Some(now()), Some(shortened(how)));
    let fence = Fence { epoch, incarnation, after: state.last };
    if let Err(refusal) = documents.write_documents(key, &fence, &[put(id, &history)]).await {
        tracing::debug!(%refusal, "the history can't be written");
    }
}

fn put(id: DocumentId, history: &[PastLeadership]) -> DocumentWrite {
    let body = serde_json::to_vec(history).unwrap_or_default();
    DocumentWrite::Put { id, body: body.into(), only_if: OnlyIf::Always }
}

fn shortened(how: &str) -> String {
    how.chars().take(REASON / char::MAX_LEN_UTF8).collect()
}

/// Reads the history of a slot, oldest leadership first.
///
/// # Errors
/// If the storage fails.
///
/// # Cancel safety
/// May be dropped at will.
pub async fn read(
    documents: &dyn DocumentStorage<ElectionKey>,
    key: &ElectionKey,
) -> Result<Vec<PastLeadership>, ReadError> {
    let Ok(id) = DocumentId::new(ID) else { return Ok(Vec::new()) };
    Ok(decode(documents.document(key, &id).await?.as_ref()))
}

/// Returns an empty history if the document can't be decoded, as one of a later version: it is only for
/// people.
fn decode(document: Option<&Document>) -> Vec<PastLeadership> {
    document.and_then(|document| serde_json::from_slice(&document.body).ok()).unwrap_or_default()
}

fn now() -> u64 {
    u64::try_from(SystemWallClock.since_unix_epoch().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(epoch: u64) -> HistoryWriter {
        let (holder, started_ms) = (format!("holder {epoch}"), epoch * 10);
        let own = PastLeadership { holder, epoch, started_ms, ended_ms: None, end: None };
        HistoryWriter { documents: None, own }
    }

    #[test]
    fn next_leader_completes_an_entry_without_an_end() {
        let first = writer(1).with(Vec::new(), None);
        assert_eq!((first[0].ended_ms, &first[0].end), (None, &None));
        let second = writer(2).with(first, None);
        assert_eq!(second[0].ended_ms, Some(20));
        assert_eq!(second[0].end.as_deref(), Some("ended without a word; followed by holder 2"));
        let ended = writer(2).with(second, Some("released"));
        assert_eq!((ended.len(), ended[1].end.as_deref()), (2, Some("released")));
        let third = writer(3).with(ended, None);
        assert_eq!(third[1].end.as_deref(), Some("released"));
    }

    #[test]
    fn history_is_bounded_in_entries_and_bytes() {
        let mut history = Vec::new();
        for epoch in 1..=200 {
            let mut writer = writer(epoch);
            writer.own.holder = "\u{1}".repeat(255);
            history = writer.with(history, Some(&"\u{1f600}".repeat(10_000)));
        }
        assert_eq!((history.len(), history[0].epoch), (KEPT, 137));
        // Far below the limits of Cassandra and DynamoDB for one document.
        assert!(serde_json::to_vec(&history).unwrap().len() < 200_000);
    }
}
