//! Tests of transactions: the number of requests, and answers that DynamoDB Local never gives.

use super::*;
use bytes::Bytes;
use ielections::{DocumentId, DocumentVersion, DocumentWrite, Fence, OnlyIf, Scan};

fn id() -> DocumentId {
    DocumentId::new("name").unwrap()
}

fn fence() -> Fence {
    Fence { epoch: entry().epoch, incarnation: entry().incarnation(), after: DocumentVersion::from_stored(4) }
}

async fn write(storage: &DynamoDbStorage) -> Result<Done, WriteError> {
    let delete = DocumentWrite::Delete { id: id(), only_if: OnlyIf::Always };
    storage.commit(partition(), Step::batch(&fence(), &[delete])).await
}

/// A cancelled transaction, with a reason for each of its actions.
fn cancelled(codes: &[&str]) -> Answer {
    let reasons: Vec<_> = codes.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
    let reasons = reasons.join(",");
    let code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    let message = "Transaction cancelled, please refer cancellation reasons for specific reasons";
    Some((400, format!(r#"{{"__type":"{code}","Message":"{message}","CancellationReasons":[{reasons}]}}"#)))
}

/// The batch item after a batch that wrote `name`.
fn batches(last: u64) -> String {
    format!(r#"{{"version":{{"N":"{last}"}},"ids":{{"BS":["bmFtZQ=="]}}}}"#)
}

const LEADER: &str = r#"{"epoch":{"N":"5"}}"#;

/// An answer to `TransactGetItems`: the leader record, the batch item, and a document.
fn together(last: u64) -> Answer {
    let (leader, batches) = (LEADER, batches(last));
    Some((200, format!(r#"{{"Responses":[{{"Item":{leader}}},{{"Item":{batches}}},{{}}]}}"#)))
}

fn found(item: &str) -> Answer {
    Some((200, format!(r#"{{"Item":{item}}}"#)))
}

#[tokio::test]
async fn each_verb_is_one_request_and_reading_the_fence_is_two() {
    let (server, storage) = opened(|operation, _| match operation {
        "GetItem" => found(&batches(4)),
        "TransactGetItems" => together(4),
        _ => active(operation),
    })
    .await;
    let at = partition();
    let asked = |operations: &[&str]| -> Vec<_> {
        operations.iter().map(|operation| ((*operation).to_owned(), 1)).collect()
    };
    assert_eq!(write(&storage).await.unwrap(), Done::Applied);
    assert_eq!(server.take_counts(), asked(&["TransactWriteItems"]));
    let state = storage.fence_state(&at).await.unwrap();
    assert_eq!((state.last, state.slot.last_epoch()), (fence().after, Epoch::new(5).ok()));
    assert_eq!(server.last_body("TransactGetItems").matches(r#""Get""#).count(), 3);
    assert_eq!(server.take_counts(), asked(&["GetItem", "TransactGetItems"]));
    let scan = Scan { limit: 10, ..Scan::default() };
    assert_eq!(storage.scan_documents(&at, &scan).await.unwrap().documents, []);
    assert!(server.last_body("Query").contains(r#""ConsistentRead":true"#));
    assert_eq!(server.take_counts(), asked(&["Query"]));
    // A scan that can't find an id sends nothing.
    let long = Scan { prefix: Bytes::from(vec![1; 1024]), limit: 10, ..Scan::default() };
    assert_eq!(storage.scan_documents(&at, &long).await.unwrap().documents, []);
    let beyond = Scan { prefix: Bytes::from_static(b"a"), after: Some(id()), limit: 10 };
    assert_eq!(storage.scan_documents(&at, &beyond).await.unwrap().next, None);
    assert_eq!(server.take_counts(), []);
}

#[tokio::test]
async fn failed_batch_is_sent_once_and_mapped_by_its_error() {
    let table: [(fn() -> Answer, _); 7] = [
        (|| cancelled(&["ConditionalCheckFailed", "None", "None"]), "Refused"),
        (|| cancelled(&["None", "None", "TransactionConflict"]), "NotApplied"),
        (|| cancelled(&["ThrottlingError", "None", "None"]), "NotApplied"),
        (|| cancelled(&["None", "ValidationError", "None"]), "Fatal"),
        (|| refusal(400, "TransactionInProgressException"), "Unknown"),
        (|| refusal(500, "InternalServerError"), "Unknown"),
        (|| None, "Unknown"),
    ];
    for (answer, expected) in table {
        let (server, storage) = opened(move |operation, _| match operation {
            "TransactWriteItems" => answer(),
            _ => active(operation),
        })
        .await;
        let outcome = write(&storage).await;
        let found = match &outcome {
            Ok(Done::Refused(Shown::Nothing)) => "Refused",
            Err(WriteError::NotApplied(_)) => "NotApplied",
            Err(WriteError::Unknown(_)) => "Unknown",
            Err(WriteError::Fatal(_)) => "Fatal",
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{outcome:?}");
        assert_eq!(server.take_counts(), [("TransactWriteItems".to_owned(), 1)], "{outcome:?}");
    }
}

#[tokio::test]
async fn fence_is_unavailable_while_a_batch_is_applied() {
    let (server, storage) = opened(|operation, _| match operation {
        "GetItem" => found(&batches(4)),
        "TransactGetItems" => cancelled(&["None", "None", "TransactionConflict"]),
        _ => active(operation),
    })
    .await;
    let state = storage.fence_state(&partition()).await;
    assert!(matches!(state, Err(ReadError::Unavailable(_))), "{state:?}");
    assert_eq!(server.take_counts(), [("GetItem".to_owned(), 1), ("TransactGetItems".to_owned(), 1)]);
}

#[tokio::test]
async fn fence_is_read_again_when_a_batch_came_between_its_two_reads() {
    // One batch between the reads is followed by a second read; batches without end are an error (I10).
    for (steady, looks) in [(true, 2), (false, 3)] {
        let (server, storage) = opened(move |operation, before| match operation {
            "GetItem" => found(&batches(4)),
            "TransactGetItems" => together(if steady { 5 } else { 5 + before as u64 }),
            _ => active(operation),
        })
        .await;
        let state = storage.fence_state(&partition()).await;
        match state {
            Ok(state) => assert!(steady && state.last == fence().after.next(), "{state:?}"),
            Err(error) => assert!(!steady && matches!(error, ReadError::Unavailable(_)), "{error:?}"),
        }
        assert_eq!(server.take_counts(), [("GetItem".to_owned(), 1), ("TransactGetItems".to_owned(), looks)]);
    }
}

#[tokio::test]
async fn answer_with_missing_items_is_unavailable_and_not_vacant() {
    let (_server, storage) = opened(|operation, _| match operation {
        "GetItem" => found(&batches(4)),
        "TransactGetItems" => ok(r#"{"Responses":[]}"#),
        _ => active(operation),
    })
    .await;
    let state = storage.fence_state(&partition()).await;
    assert!(matches!(state, Err(ReadError::Unavailable(_))), "{state:?}");
}
