use super::{fresh, server, url};
use crate::{
    driver::{described, is_the_storage_at},
    is_refused,
};
use object_store::aws::AmazonS3Builder;
use std::{sync::Arc, time::Duration};
use vvm_storage::{
    OpenErrorKind,
    cells::{CellStorage as _, Cells},
    init_storage,
    objects::{ObjectCells, ObjectStoreBuilder, OpenOptions},
};

#[tokio::test]
async fn prefix_that_was_not_initialised_is_refused() {
    let url = url(&fresh());
    is_refused(&url, OpenErrorKind::Missing, &["vvm init-storage"]).await;
    assert!(ObjectCells::open_read_only(&url).await.is_err());
    init_storage(&url).await.unwrap();
    init_storage(&url).await.unwrap();
    let opened = ObjectCells::open(&url).await.unwrap().opened().unwrap();
    assert!(!opened.location.contains("request_timeout"), "{opened}");
}

#[tokio::test(flavor = "multi_thread")]
async fn builder_of_the_caller_opens_the_same_records() {
    let name = fresh();
    let url = url(&name);
    init_storage(&url).await.unwrap();
    let (place, text) = url.strip_prefix("s3://").unwrap().split_once('?').unwrap();
    let (bucket, prefix) = place.split_once('/').unwrap();
    let value = |name: &str| text.split('&').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_region("us-east-1");
    builder = value("region").into_iter().fold(builder, AmazonS3Builder::with_region);
    builder = value("endpoint").into_iter().fold(builder, AmazonS3Builder::with_endpoint);
    let options = OpenOptions { request_timeout: Duration::from_secs(20), ..OpenOptions::default() };
    let cells = ObjectCells::open_with(ObjectStoreBuilder::S3(builder), prefix, options).await.unwrap();
    is_the_storage_at(&url, Arc::new(Cells::new(cells))).await;
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
    let silent = "s3://bucket/elections?endpoint=http://127.0.0.1:1";
    is_refused(silent, OpenErrorKind::Passing, &["127.0.0.1:1"]).await;
}
