//! Servers that accept conflicting writes, or show a tag with the content of another write, are refused.

use super::{below, fresh};
use object_store::{ObjectStoreExt as _, aws::AmazonS3Builder, path::Path};
use std::sync::Arc;
use vvm_clock::SystemClock;
use vvm_storage::{cells::CellStorage as _, init_storage, objects::ObjectCells};

/// The URL of S3Mock, if it was started.
fn s3mock() -> Option<String> {
    std::env::var("VVM_TEST_S3_MOCK").ok()
}

/// Returns the URLs of such servers.
fn servers() -> Vec<String> {
    let racy = std::env::var("VVM_TEST_S3_RACY").expect(
        "VVM_TEST_S3_RACY=s3://… says where a server is that loses writes; `cargo xtask test-drivers --only \
         s3` starts one",
    );
    [racy].into_iter().chain(s3mock()).collect()
}

/// How often each server is tried: `VVM_TEST_S3_TRIES`, or a few times.
fn tries() -> u32 {
    std::env::var("VVM_TEST_S3_TRIES").map_or(5, |tries| tries.parse().expect("VVM_TEST_S3_TRIES=200"))
}

/// A race is a matter of chance: what it misses is counted, so that many tries show how seldom that is.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_loses_writes_is_refused_by_init_storage() {
    for server in servers() {
        let mut missed = 0;
        for _ in 0..tries() {
            match init_storage(&below(&server, &fresh())).await {
                Ok(_) => missed += 1,
                Err(refusal) => {
                    println!("{refusal}");
                    let refusal = refusal.to_string();
                    assert!(refusal.contains("Two candidates would lead"), "{refusal}");
                    assert_eq!(
                        refusal.contains("like S3Mock"),
                        Some(&server) == s3mock().as_ref(),
                        "{refusal}"
                    );
                    // A server that is known is refused whatever the race shows.
                    missed += u32::from(
                        refusal.contains("acknowledged 0 times, and 0 times") && refusal.contains("; 0 of"),
                    );
                }
            }
        }
        println!("missed in {missed} of {} tries: {server}", tries());
        assert_eq!(missed, 0, "of {} tries: {server}", tries());
    }
}

/// Leaves the mark of `init_storage`, as if the server had been another one at that time.
async fn mark(url: &str) {
    let (place, options) = url.strip_prefix("s3://").unwrap().split_once('?').unwrap();
    let (bucket, prefix) = place.split_once('/').unwrap();
    let endpoint = options.split('&').find_map(|option| option.strip_prefix("endpoint=")).unwrap();
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .build()
        .unwrap();
    let mark = Path::from(format!("{prefix}/initialised"));
    store.put(&mark, "vvm elections, format 1\n".into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_loses_writes_is_a_concern_of_doctor() {
    for server in servers() {
        let clock = Arc::new(SystemClock::start().unwrap());
        let name = fresh();
        let url = below(&server, &name);
        mark(&url).await;
        let cells = ObjectCells::open_to_look(&url, clock).await.unwrap();
        let described = cells.describe().await.unwrap();
        println!("{described:#?}");
        assert_eq!(described.setting("conditions"), Some("not obeyed"));
        assert!(described.concerns.iter().any(|concern| concern.contains("Use another server")));
    }
}
