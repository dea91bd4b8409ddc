use super::started;
use crate::{
    driver::{TTL, VACANT, described, entry},
    failover_suite::{
        self, Pair, Promotable, claimed, is_waiting, peeked, refused_claim, settled, vacant, vacated,
    },
};
use ielections::WriteError;
use servers::{mysql::MariaDb, replicated::Replicated as _};
use std::sync::Mutex;
use vvm_storage::Step;

failover_suite::failover_suite!(MariaDb);

impl Promotable for MariaDb {
    fn started() -> Self {
        started(&[])
    }

    fn hosts(hosts: &str) -> String {
        format!("mysql://root@{hosts}/elections")
    }

    async fn catch_up(&self, standby: &Self) {
        self.catch_up(standby).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_that_wait_leave_a_third_of_the_connections_and_a_leader_keeps_its_own() {
    let server = started(&["--max-connections=30"]);
    let (url, other) = (server.url("elections"), Mutex::new(server.client("").unwrap()));
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = 'elections'";
    let held = async || other.lock().unwrap().ask(count).unwrap()[0][0].parse().unwrap();
    // The server has one more for an administrator.
    let fill = async || std::iter::from_fn(|| server.client("").ok()).collect();
    failover_suite::candidates_that_wait_leave_a_third_of_the_connections_and_a_leader_keeps_its_own(
        &url, held, fill,
    )
    .await;
}

/// The former primary comes back as it was, with the name that its own history has. A process that saw the later one tells it.
#[tokio::test(flavor = "multi_thread")]
async fn switch_back_to_a_former_primary_that_lags_is_another_history_for_who_saw_the_later_one() {
    let mut pair = Pair::<MariaDb>::start().await;
    let witness = pair.open().await;
    vacated(&*witness, "slot", 5).await;
    pair.cut().await;
    pair.fail_over();
    let waiting = refused_claim(&*witness, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    let epoch = waiting.last_epoch().unwrap().get();
    let leader = entry(epoch + 1, 1, TTL);
    claimed(&*witness, "slot", &waiting, &leader).await;
    pair.primary.restart().unwrap();
    pair.standby.kill().unwrap();
    let renewal = settled(&*witness, "slot", Step::renew(&leader, &entry(epoch + 1, 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    let stands = peeked(&*witness, "slot").await;
    assert!(is_waiting(&stands, epoch + 1), "{stands:?}");
    assert_eq!(peeked(&*pair.open().await, "slot").await, stands);
}

/// After a restore, an operator makes the storage wait.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_was_restored_and_whose_name_is_cleared_is_another_history() {
    let mut pair = Pair::<MariaDb>::start().await;
    let storage = pair.open().await;
    vacated(&*storage, "slot", 5).await;
    let copy = pair.primary.copy().unwrap();
    let held = entry(6, 1, TTL);
    let claim = settled(&*storage, "slot", Step::claim(&vacant(5), &held)).await;
    assert!(claim.is_ok(), "{claim:?}");
    pair.primary.restore(&copy, "UPDATE elections.sysvvm_history SET server = ''").unwrap();
    let renewal = settled(&*storage, "slot", Step::renew(&held, &entry(6, 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    let stands = refused_claim(&*pair.open().await, "slot", &VACANT, &entry(7, 1, TTL)).await;
    assert!(is_waiting(&stands, 6), "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_no_commit_waits_for_any_more_are_described_as_asynchronous() {
    let pair = Pair::<MariaDb>::start().await;
    pair.primary.statement("SET GLOBAL rpl_semi_sync_master_timeout = 1").unwrap();
    pair.primary.statement("SET GLOBAL rpl_semi_sync_master_enabled = ON").unwrap();
    let asynchronous = async || {
        let described = described(&pair.url()).await;
        assert_eq!(described.setting("replicas"), Some("1"));
        described.concerns.iter().any(|concern| concern.contains("asynchronous"))
    };
    assert!(!asynchronous().await);
    vacated(&*pair.open().await, "slot", 5).await;
    assert!(asynchronous().await);
}
