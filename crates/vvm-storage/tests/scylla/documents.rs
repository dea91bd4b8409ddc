//! Documents on a real cluster, as far as their suite does not test them: thousands of deleted documents, and
//! the largest pages.

use super::{contact_points, copies, session};
use bytes::Bytes;
use ielections::{DocumentId, DocumentVersion, DocumentWrite, Entry, Fence, OnlyIf, Scan, Slot, Vacant};
use std::time::Duration;
use vvm_storage::{Done, Partition, Step, SysVvmStorage, init_storage, scylla::ScyllaStorage};

/// After so long a wait fails.
const HANG_LIMIT: Duration = Duration::from_secs(30);

/// Returns a keyspace that no earlier run used, and its URL.
async fn fresh(name: &str) -> (String, String) {
    let keyspace = super::fresh(name);
    let url = format!("scylla://{}/{keyspace}?replication={}", contact_points(), copies().await);
    (keyspace, url)
}

fn entry() -> Entry {
    ielections::testing::entry(7, 0, 1)
}

fn partition() -> Partition {
    Partition::from_bytes(*b"partition")
}

/// Creates a storage on which `entry` leads.
async fn led(url: &str) -> ScyllaStorage {
    init_storage(url).await.unwrap();
    let storage = ScyllaStorage::open(url).await.unwrap();
    let vacant = Slot::Vacant(Vacant { last_epoch: None });
    assert_eq!(storage.commit(partition(), Step::claim(&vacant, &entry())).await.unwrap(), Done::Applied);
    storage
}

async fn write(storage: &ScyllaStorage, after: u64, batch: &[DocumentWrite]) -> Done {
    let after = DocumentVersion::from_stored(after);
    let fence = Fence { epoch: entry().epoch, incarnation: entry().incarnation(), after };
    storage.commit(partition(), Step::batch(&fence, batch)).await.unwrap()
}

fn put(id: impl Into<Bytes>, bytes: usize) -> DocumentWrite {
    let id = DocumentId::new(id).unwrap();
    DocumentWrite::Put { id, body: vec![b'x'; bytes].into(), only_if: OnlyIf::Always }
}

/// A renewal compares only static columns, but Cassandra reads up to the first live row for them. A node
/// refuses a read that meets 100,000 tombstones, so a leader that deleted as many documents could not renew.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_reads_no_tombstone_after_1000_deletions() {
    let (keyspace, url) = fresh("tombstones").await;
    let storage = led(&url).await;
    let ids: Vec<Vec<u8>> = (0..1_000_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    for (batch, ids) in (0..).zip(ids.chunks(250)) {
        let deletes: Vec<_> = ids
            .iter()
            .map(|id| DocumentWrite::Delete {
                id: DocumentId::new(id.clone()).unwrap(),
                only_if: OnlyIf::Always,
            })
            .collect();
        assert_eq!(write(&storage, batch, &deletes).await, Done::Applied);
    }
    let session = session().await;
    let mut read = ::scylla::statement::unprepared::Statement::new(format!(
        "SELECT epoch FROM {keyspace}.sysvvm WHERE pk = ? LIMIT 1"
    ));
    read.set_tracing(true);
    let answer = session.query_unpaged(read, (partition().as_bytes(),)).await.unwrap();
    let id = answer.tracing_id().unwrap();
    // The words of Cassandra, and those of ScyllaDB.
    let counts = |words: &String| words.contains(" tombstone cells") || words.contains(" dead)");
    let read_none = |words: &String| words.contains(" and 0 tombstone cells") || words.contains(", 0 dead)");
    let trace = async {
        loop {
            let trace = session.get_tracing_info(&id).await.unwrap();
            let words: Vec<_> = trace.events.into_iter().filter_map(|event| event.activity).collect();
            // A server writes the events of a trace after its answer, and one after the other.
            if words.iter().any(counts) {
                return words;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let words = tokio::time::timeout(HANG_LIMIT, trace).await.expect("the trace never says what was read");
    assert!(words.iter().any(read_none), "{words:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_the_largest_documents_is_answered_in_time() {
    let (_, url) = fresh("large").await;
    let storage = led(&url).await;
    let limits = storage.document_limits().unwrap();
    for number in 0..limits.max_page {
        let large = put(number.to_be_bytes().to_vec(), limits.max_body_bytes);
        assert_eq!(write(&storage, number as u64, &[large]).await, Done::Applied);
    }
    let scan = Scan { prefix: Bytes::new(), after: None, limit: limits.max_page };
    let page = storage.scan_documents(&partition(), &scan).await.unwrap();
    // A server may return a shorter page with a continuation.
    assert!(page.documents.len() == limits.max_page || page.next.is_some(), "{}", page.documents.len());
}
