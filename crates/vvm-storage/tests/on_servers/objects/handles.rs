use super::{fresh, server, url};
use crate::{driver::described, is_refused};
use vvm_storage::{OpenErrorKind, cells::CellStorage as _, init_storage, objects::ObjectCells};

#[tokio::test]
async fn prefix_that_was_not_initialised_is_refused() {
    let url = url(&fresh());
    is_refused(&url, OpenErrorKind::Missing, &["vvm init-storage"]).await;
    assert!(ObjectCells::open_to_look(&url).await.is_err());
    init_storage(&url).await.unwrap();
    init_storage(&url).await.unwrap();
    let opened = ObjectCells::open(&url).await.unwrap().opened().unwrap();
    assert!(!opened.location.contains("request_timeout"), "{opened}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_obeys_conditions_is_initialised_and_described() {
    let described = described(&url(&fresh())).await;
    assert!(described.setting("conditions").unwrap().starts_with("obeyed by 16 writers"), "{described:?}");
    assert!(described.software.is_some());
}

#[tokio::test]
async fn missing_bucket_and_silent_endpoint_are_named() {
    let server = server();
    let (place, options) = server.split_once('?').unwrap();
    let (scheme, _) = place.split_once("://").unwrap();
    let missing = format!("{scheme}://no-such-bucket-{}/elections?{options}", fresh());
    is_refused(&missing, OpenErrorKind::Refused, &["create it"]).await;
    // No program listens on port 1 of this machine.
    let silent = "s3://bucket/elections?endpoint=http://127.0.0.1:1";
    is_refused(silent, OpenErrorKind::Passing, &["127.0.0.1:1"]).await;
}
