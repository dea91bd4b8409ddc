//! Who led when: a bounded log beside the record, written by whoever leads, for people.
//!
//! It is a fenced document in the slot's own partition, so that only the leader writes it, and no later
//! leader's entry is overwritten. Nothing waits for it: a start is noted while the command works already, an
//! end within a short time or not at all, and an end that nobody noted is noted by the next leader. Wall
//! clocks tell the times, so they may contradict each other; the order of the entries is that of the epochs.
//!
//! What does not live here: how it is shown (`history::show`).

use ielections::{
    Document, DocumentId, DocumentStorage, DocumentWrite, Documents, OnlyIf, ReadError, Standing,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemWallClock, WallClock as _};
use vvm_storage::ElectionKey;

/// How many leaderships are remembered. With the longest names and reasons, 64 kB.
const KEPT: usize = 64;

/// The longest reason that is kept, in bytes.
const REASON: usize = 400;

/// Which document. Without the byte that ends the name of a collection, so that it is none of an instance.
const ID: &[u8] = b"vvm-history";

/// How long the note of an end may hold up a release, at most: a storage that takes longer for a read and a
/// write keeps the release itself waiting as long. Of a short TTL, [`PATIENCE_SHARE`].
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// See [`PATIENCE`].
pub(crate) const PATIENCE_SHARE: u32 = 10;

/// One leadership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastLeadership {
    /// The leader, for people.
    pub holder: String,
    /// Its fencing token.
    pub epoch: u64,
    /// Milliseconds since 1970, on the leader's wall clock.
    pub started_ms: u64,
    /// Of its end, or of when somebody noticed; none while it lasts.
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub end: Option<String>,
}

/// The log of one leadership's slot, as its leader keeps it.
pub(crate) struct Keeper {
    documents: Option<Documents>,
    holder: String,
    epoch: u64,
    started_ms: u64,
}

impl Keeper {
    /// Under `standing`. Keeps nothing where the storage keeps no documents.
    pub(crate) fn under(standing: &Standing, holder: &str) -> Self {
        let (holder, epoch) = (holder.to_owned(), standing.epoch().get());
        Self { documents: standing.documents(), holder, epoch, started_ms: now() }
    }

    /// Notes the start, and the end of whoever left none.
    ///
    /// # Cancel safety
    /// Dropped, it is noted or not.
    pub(crate) async fn started(&self) {
        self.note(None).await;
    }

    /// Notes the end, for as long as nobody minds waiting. Before the record is released: after that nothing
    /// is ours to write.
    ///
    /// # Cancel safety
    /// Dropped, it is noted or not.
    pub(crate) async fn ended(&self, how: &str, clock: &Arc<dyn Clock>, patience: Duration) {
        tokio::select! {
            biased;
            () = self.note(Some(how)) => {}
            () = clock.sleep(patience) => tracing::debug!("the history did not take the end in time"),
        }
    }

    async fn note(&self, end: Option<&str>) {
        let Some(documents) = &self.documents else { return };
        let Ok(id) = DocumentId::new(ID) else { return };
        let known = match documents.get(&id).await {
            Ok(document) => decode(document.as_ref()),
            Err(refusal) => return tracing::debug!(%refusal, "the history can't be read"),
        };
        let body = serde_json::to_vec(&self.with(known, end)).unwrap_or_default();
        let write = DocumentWrite::Put { id, body: body.into(), only_if: OnlyIf::Always };
        if let Err(refusal) = documents.write(vec![write]).await {
            tracing::debug!(%refusal, "the history can't be written");
        }
    }

    /// The log, with this leadership as its last entry.
    fn with(&self, mut reigns: Vec<PastLeadership>, end: Option<&str>) -> Vec<PastLeadership> {
        reigns.retain(|reign| reign.epoch < self.epoch);
        for left in reigns.iter_mut().filter(|reign| reign.ended_ms.is_none()) {
            left.ended_ms = Some(self.started_ms);
            left.end = Some(format!("ended without a word; followed by {}", self.holder));
        }
        let end = end.map(|end| end.chars().take(REASON / char::MAX_LEN_UTF8).collect());
        let ended_ms = end.as_ref().map(|_: &String| now());
        let (holder, epoch, started_ms) = (self.holder.clone(), self.epoch, self.started_ms);
        reigns.push(PastLeadership { holder, epoch, started_ms, ended_ms, end });
        let surplus = reigns.len().saturating_sub(KEPT);
        reigns.drain(..surplus);
        reigns
    }
}

/// The log of a slot, oldest first; none where the storage keeps no documents.
///
/// # Errors
/// When the storage fails.
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

/// What can't be read (a later version's, say) counts as nothing: it is for people, and a leader writes it
/// anew.
fn decode(document: Option<&Document>) -> Vec<PastLeadership> {
    document.and_then(|document| serde_json::from_slice(&document.body).ok()).unwrap_or_default()
}

fn now() -> u64 {
    u64::try_from(SystemWallClock.since_unix_epoch().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(epoch: u64) -> Keeper {
        Keeper { documents: None, holder: format!("holder {epoch}"), epoch, started_ms: epoch * 10 }
    }

    #[test]
    fn an_end_that_nobody_noted_is_noted_by_the_next_one() {
        let first = keeper(1).with(Vec::new(), None);
        assert_eq!((first[0].ended_ms, &first[0].end), (None, &None));
        let second = keeper(2).with(first, None);
        assert_eq!(second[0].ended_ms, Some(20));
        assert_eq!(second[0].end.as_deref(), Some("ended without a word; followed by holder 2"));
        let ended = keeper(2).with(second, Some("released"));
        assert_eq!((ended.len(), ended[1].end.as_deref()), (2, Some("released")));
        let third = keeper(3).with(ended, None);
        assert_eq!(third[1].end.as_deref(), Some("released"));
    }

    #[test]
    fn it_is_bounded_whatever_stands_in_it() {
        let mut reigns = Vec::new();
        for epoch in 1..=200 {
            let keeper = Keeper { holder: "\u{1}".repeat(255), ..keeper(epoch) };
            reigns = keeper.with(reigns, Some(&"\u{1f600}".repeat(10_000)));
        }
        assert_eq!((reigns.len(), reigns[0].epoch), (KEPT, 137));
        // Cassandra's and DynamoDB's limits for one document are well above.
        assert!(serde_json::to_vec(&reigns).unwrap().len() < 200_000);
    }
}
