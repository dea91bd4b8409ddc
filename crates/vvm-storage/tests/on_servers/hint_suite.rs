//! The suite of hints: handles that share nothing but the server hint at changes to each other.
#![allow(unused, reason = "not every build has a server with hints")]

use crate::driver::{TTL, entry, fresh, opened};
use ielections::{Claim, Epoch, Incarnation, TtlStorage as _, Vacant};
use std::{num::NonZeroU32, time::Duration};
use tokio::time::timeout;
use vvm_storage::{Ask, ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, init_storage};

/// More than a hint takes, on any machine.
const LONG: Duration = Duration::from_secs(20);

/// For a hint that must not come. One that comes later is not noticed.
const SHORT: Duration = Duration::from_millis(500);

pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) leader: ElectionsTtlStorage,
    pub(crate) standby: ElectionsTtlStorage,
}

impl Scene {
    pub(crate) async fn on(url: &str) -> Self {
        let scene = Self::without_hints(url).await;
        assert!(!scene.listens());
        // The first one comes when the server listens.
        assert!(scene.is_hinted().await, "the beginning");
        assert!(scene.listens() && !scene.standby.listens(&"other".into()));
        scene
    }

    pub(crate) async fn without_hints(url: &str) -> Self {
        init_storage(url).await.unwrap();
        let open = async || ElectionsTtlStorage::new(opened(url).await.unwrap());
        let (name, leader) = (fresh("hints").replace('_', "-"), open().await);
        leader.settle_slot_count(&name.as_str().into(), NonZeroU32::MIN).await.unwrap();
        Self { name, leader, standby: open().await }
    }

    pub(crate) fn cluster(&self) -> ClusterName {
        self.name.as_str().into()
    }

    pub(crate) fn key(&self) -> ElectionKey {
        ElectionKey { cluster: self.cluster(), slot: SlotNumber::FIRST }
    }

    pub(crate) async fn claimed(&self, epoch: u64) {
        self.claimed_in(&self.key(), epoch).await;
    }

    async fn claimed_in(&self, key: &ElectionKey, epoch: u64) {
        let vacant = Vacant { last_epoch: Epoch::new(epoch - 1).ok() };
        let claim = self.leader.insert_if_not_exist(key, vacant, &entry(epoch, 1, TTL)).await;
        assert_eq!(claim.unwrap(), Claim::Claimed);
    }

    pub(crate) async fn released(&self, epoch: u64) {
        self.released_in(&self.key(), epoch).await;
    }

    async fn released_in(&self, key: &ElectionKey, epoch: u64) {
        let held = entry(epoch, 1, TTL);
        self.leader.compare_and_delete(key, held.incarnation(), held.epoch).await.unwrap();
    }

    pub(crate) fn listens(&self) -> bool {
        self.standby.listens(&self.cluster())
    }

    pub(crate) async fn is_hinted(&self) -> bool {
        self.is_hinted_within(LONG).await
    }

    pub(crate) async fn is_hinted_soon(&self) -> bool {
        self.is_hinted_within(SHORT).await
    }

    async fn is_hinted_within(&self, span: Duration) -> bool {
        timeout(span, self.standby.hinted(&self.cluster())).await.is_ok()
    }

    pub(crate) async fn quiet(&self) {
        while self.is_hinted_soon().await {}
    }

    pub(crate) async fn hints_at_releases_and_requests_alone(&self) {
        self.claimed(1).await;
        // A first claim may store more than its record.
        self.quiet().await;
        self.leader.compare_and_swap(&self.key(), &entry(1, 1, TTL), &entry(1, 2, TTL)).await.unwrap();
        assert!(!self.is_hinted_soon().await, "a renewal");
        self.released(1).await;
        assert!(self.is_hinted().await, "the release");
        self.claimed(2).await;
        assert!(!self.is_hinted_soon().await, "a claim");
        let ask = Ask { incarnation: Incarnation::from_bytes([8; 16]), since_unix_epoch: Duration::ZERO };
        let (pause, _) = self.leader.pause(&self.cluster(), &entry(1, 1, TTL).holder, ask).await.unwrap();
        assert!(self.is_hinted().await, "the pause");
        self.leader.resume(&self.cluster(), &pause).await.unwrap();
        assert!(self.is_hinted().await, "the resume");
        let other = ElectionKey { cluster: format!("{}2", self.name).as_str().into(), ..self.key() };
        self.claimed_in(&other, 1).await;
        self.released_in(&other, 1).await;
        assert!(!self.is_hinted_soon().await, "the release of another name");
    }

    pub(crate) async fn keeps_a_hint_for_which_no_call_waits(&self) {
        self.claimed(1).await;
        self.quiet().await;
        // Dropped at once, as a wait is that loses against a look.
        let _elapsed = timeout(Duration::ZERO, self.standby.hinted(&self.cluster())).await;
        self.released(1).await;
        // The connection may belong to looks meanwhile.
        self.standby.scan(&[self.key()]).await.unwrap();
        assert!(self.is_hinted().await);
        assert!(!self.is_hinted_soon().await, "told twice");
    }

    pub(crate) async fn hints_at_each_of_two_names_alone(&self) {
        let other = ElectionKey { cluster: format!("{}-b", self.name).as_str().into(), ..self.key() };
        let hinted = async |name: &ClusterName, span| timeout(span, self.standby.hinted(name)).await.is_ok();
        assert!(hinted(&other.cluster, LONG).await, "the beginning");
        assert!(self.listens() && self.standby.listens(&other.cluster));
        for key in [&self.key(), &other] {
            self.claimed_in(key, 1).await;
        }
        while hinted(&other.cluster, SHORT).await {}
        self.quiet().await;
        let hints = tokio::join!(self.is_hinted_soon(), hinted(&other.cluster, SHORT));
        assert_eq!(hints, (false, false), "a wait for one ends a wait for the other");
        self.released(1).await;
        let hints = tokio::join!(self.is_hinted(), hinted(&other.cluster, SHORT));
        assert_eq!(hints, (true, false), "the release of the first");
        let (hint, ()) = tokio::join!(hinted(&other.cluster, LONG), self.released_in(&other, 1));
        assert!(hint && !self.is_hinted_soon().await, "the release of the second");
        assert!(self.listens() && self.standby.listens(&other.cluster));
    }

    /// `lies` makes hints without a change, many of them, or changes what is no record.
    pub(crate) async fn is_not_harmed_by(&self, lies: impl AsyncFnOnce()) {
        self.claimed(1).await;
        self.quiet().await;
        lies().await;
        assert!(self.is_hinted().await);
        let seen = self.standby.scan(&[self.key()]).await.unwrap();
        assert_eq!(seen[0].entry(), Some(&entry(1, 1, TTL)));
        self.quiet().await;
        self.released(1).await;
        assert!(self.is_hinted().await);
    }
}

/// Makes a test of each case that needs nothing of the server but its URL.
macro_rules! hints_suite {
    ($url:expr) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn release_and_request_are_hinted_at_and_a_renewal_is_not() {
            $crate::hint_suite::Scene::on(&$url).await.hints_at_releases_and_requests_alone().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn hint_that_comes_while_no_call_waits_is_kept() {
            $crate::hint_suite::Scene::on(&$url).await.keeps_a_hint_for_which_no_call_waits().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn two_names_on_one_handle_have_their_hints_beside_each_other() {
            $crate::hint_suite::Scene::on(&$url).await.hints_at_each_of_two_names_alone().await;
        }
    };
}

pub(crate) use hints_suite;
