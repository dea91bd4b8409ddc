use super::{contact_points, copies, session};
use crate::driver::{TTL, fresh, led};
use bytes::Bytes;
use ielections::{
    DocumentVersion, DocumentWrite, Entry, Fence, OnlyIf, Scan,
    testing::{id, put},
};
use std::time::Duration;
use vvm_storage::{Partition, Step, StepOutcome, SysVvmStorage, init_storage, scylla::ScyllaStorage};

const HANG_LIMIT: Duration = Duration::from_secs(30);

struct Led {
    keyspace: String,
    storage: ScyllaStorage,
    at: Partition,
    held: Entry,
}

impl Led {
    async fn new(name: &str) -> Self {
        let keyspace = fresh(name);
        let url = format!("scylla://{}/{keyspace}?replication={}", contact_points(), copies().await);
        init_storage(&url).await.unwrap();
        let storage = ScyllaStorage::open(&url).await.unwrap();
        let (at, held) = led(&storage, TTL).await;
        Self { keyspace, storage, at, held }
    }

    async fn write(&self, after: u64, batch: &[DocumentWrite]) {
        let after = DocumentVersion::from_stored(after);
        let fence = Fence { epoch: self.held.epoch, incarnation: self.held.incarnation(), after };
        let written = self.storage.commit(self.at.clone(), Step::batch(&fence, batch)).await;
        assert_eq!(written.unwrap(), StepOutcome::Applied);
    }
}

/// A renewal compares only static columns, but Cassandra reads up to the first live row for them. A node
/// refuses a read that meets 100,000 tombstones, so a leader that deleted as many documents could not renew.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_reads_no_tombstone_after_1000_deletions() {
    let led = Led::new("tombstones").await;
    let deletes: Vec<_> = (0..1_000_u32)
        .map(|number| DocumentWrite::Delete { id: id(number.to_be_bytes()), only_if: OnlyIf::Always })
        .collect();
    for (after, batch) in (0..).zip(deletes.chunks(250)) {
        led.write(after, batch).await;
    }
    let session = session().await;
    let mut read = ::scylla::statement::unprepared::Statement::new(format!(
        "SELECT epoch FROM {}.sysvvm WHERE pk = ? LIMIT 1",
        led.keyspace
    ));
    read.set_tracing(true);
    let answer = session.query_unpaged(read, (led.at.as_bytes(),)).await.unwrap();
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
    let led = Led::new("large").await;
    let limits = led.storage.document_limits().unwrap();
    let body = vec![b'x'; limits.max_body_bytes];
    for number in 0..limits.max_page as u64 {
        led.write(number, &[put(number.to_be_bytes(), &body)]).await;
    }
    let scan = Scan { prefix: Bytes::new(), after: None, limit: limits.max_page };
    let page = led.storage.scan_documents(&led.at, &scan).await.unwrap();
    // A server may return a shorter page with a continuation.
    assert!(page.documents.len() == limits.max_page || page.next.is_some(), "{}", page.documents.len());
}
