//! What a handle of a bucket refuses, describes and finds.

use super::{fresh, server, url};
use crate::{driver::described, is_refused};
use vvm_storage::{
    OpenErrorKind, Partition,
    cells::{CellStorage as _, CellWrite, Expected},
    init_storage,
    objects::ObjectCells,
};

async fn cells(url: &str) -> ObjectCells {
    ObjectCells::open(url).await.unwrap()
}

#[tokio::test]
async fn prefix_that_was_not_initialised_is_refused() {
    let url = url(&fresh());
    is_refused(&url, OpenErrorKind::Missing, &["vvm init-storage"]).await;
    assert!(ObjectCells::open_to_look(&url).await.is_err());
    init_storage(&url).await.unwrap();
    init_storage(&url).await.unwrap();
    let opened = cells(&url).await.opened().unwrap();
    assert!(!opened.location.contains("request_timeout"), "{opened}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_obeys_conditions_is_initialised_and_described() {
    let described = described(&url(&fresh())).await;
    assert!(described.setting("conditions").unwrap().starts_with("obeyed by 16 writers"), "{described:?}");
    assert!(described.software.is_some());
}

#[tokio::test]
async fn write_with_a_former_tag_is_refused_and_changes_nothing() {
    let url = url(&fresh());
    init_storage(&url).await.unwrap();
    let cells = cells(&url).await;
    let at = Partition::from_bytes(*b"cell");
    let write = async |value: &'static str, expected| cells.write(&at, value.into(), expected).await.unwrap();
    let CellWrite::Written(Some(first)) = write("first", Expected::Absent).await else { panic!("no tag") };
    assert_eq!(write("again", Expected::Absent).await, CellWrite::Refused);
    let read = cells.read(&at).await.unwrap().unwrap();
    assert_eq!((&read.value[..], &read.tag), (&b"first"[..], &first));
    let CellWrite::Written(Some(second)) = write("second", Expected::Tag(first.clone())).await else {
        panic!("no tag")
    };
    assert_ne!(first, second);
    assert_eq!(write("late", Expected::Tag(first)).await, CellWrite::Refused);
    assert_eq!(&cells.read(&at).await.unwrap().unwrap().value[..], b"second");
}

#[tokio::test]
async fn missing_bucket_is_named() {
    let server = server();
    let (place, options) = server.split_once('?').unwrap();
    let (scheme, _) = place.split_once("://").unwrap();
    let missing = format!("{scheme}://no-such-bucket-{}/elections?{options}", fresh());
    is_refused(&missing, OpenErrorKind::Refused, &["create it"]).await;
}

#[tokio::test]
async fn endpoint_that_does_not_answer_is_named() {
    // No program listens on port 1 of this machine.
    let silent = "s3://bucket/elections?endpoint=http://127.0.0.1:1";
    is_refused(silent, OpenErrorKind::Passing, &["127.0.0.1:1"]).await;
}
