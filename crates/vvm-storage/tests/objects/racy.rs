//! Servers that accept conflicting writes, or show a tag with the content of another write, are refused.

use super::{below, fresh};
use vvm_storage::init_storage;

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
