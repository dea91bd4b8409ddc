//! A bucket of your own needs its platform's variables for credentials; `gs://…` and `az://…` work, too.

mod handles;

use crate::driver::{self, Driver, all_suites_on_a_server};
use tokio::sync::OnceCell;
use vvm_storage::init_storage;

all_suites_on_a_server!(driver().await);

fn server() -> String {
    crate::server("VVM_TEST_S3", "s3://bucket/prefix?region=…", "s3")
}

fn url(name: &str) -> String {
    format!("{}&request_timeout=20s", below(&server(), name))
}

fn below(server: &str, name: &str) -> String {
    let (place, options) = server.split_once('?').unwrap_or((server, ""));
    format!("{place}/{name}?{options}")
}

fn fresh() -> String {
    driver::fresh("objects").replace('_', "-")
}

/// Races the server once, for all cases.
async fn driver() -> Driver {
    static DRIVER_IS_READY: OnceCell<()> = OnceCell::const_new();
    let url = url("suites");
    DRIVER_IS_READY.get_or_init(async || init_storage(&url).await.unwrap()).await;
    Driver::at(url).with_ttl(Driver::TTL_ON_A_SERVER)
}

mod racy {
    use super::{below, fresh};
    use vvm_storage::init_storage;

    fn s3mock() -> Option<String> {
        std::env::var("VVM_TEST_S3_MOCK").ok()
    }

    fn servers() -> Vec<String> {
        let racy = crate::server("VVM_TEST_S3_RACY", "s3://…", "s3");
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
                        let is_s3mock = Some(&server) == s3mock().as_ref();
                        assert_eq!(refusal.contains("like S3Mock"), is_s3mock, "{refusal}");
                        // A server that is known is refused whatever the race shows.
                        missed += u32::from(
                            refusal.contains("acknowledged 0 times, and 0 times")
                                && refusal.contains("; 0 of"),
                        );
                    }
                }
            }
            println!("missed in {missed} of {} tries: {server}", tries());
            assert_eq!(missed, 0, "of {} tries: {server}", tries());
        }
    }
}
