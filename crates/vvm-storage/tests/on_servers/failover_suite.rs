//! A standby that is killed before the primary's last writes, and started again after the primary's end, has forgotten
//! them when it is promoted. `cargo xtask test-drivers --faults` has elections across such fail-overs.

use crate::{
    driver::{TTL, VACANT, entry, opened, slot_of},
    is_refused,
};
use ielections::{Entry, Epoch, Fence, Slot, Vacant, WriteError, documents::DocumentVersion};
use servers::replicated::Replicated;
use std::{sync::Arc, time::Duration};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_storage::{CurrentState, OpenErrorKind, Step, StepOutcome, SysVvmStorage, init_storage};

pub(crate) trait Promotable: Replicated {
    fn started() -> Self;

    fn hosts(hosts: &str) -> String;

    fn catch_up(&self, standby: &Self) -> impl Future<Output = ()>;
}

/// A primary and a standby of it, which is asynchronous.
pub(crate) struct Pair<S> {
    pub(crate) primary: S,
    pub(crate) standby: S,
}

const OPTIONS: &str = "max_ttl=2s&request_timeout=4s";

impl<S: Promotable> Pair<S> {
    pub(crate) async fn start() -> Self {
        let mut primary = S::started();
        let url = format!("{}?{OPTIONS}", S::hosts(&primary.address().to_string()));
        init_storage(&url).await.unwrap();
        let standby = primary.standby().unwrap();
        Self { primary, standby }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?{OPTIONS}", S::hosts(&format!("{},{}", self.primary.address(), self.standby.address())))
    }

    pub(crate) async fn open(&self) -> Arc<dyn SysVvmStorage> {
        opened(&self.url()).await.unwrap()
    }

    pub(crate) async fn cut(&mut self) {
        self.primary.catch_up(&self.standby).await;
        self.standby.kill().unwrap();
    }

    pub(crate) fn fail_over(&mut self) {
        self.primary.kill().unwrap();
        self.standby.restart().unwrap();
        self.standby.promote().unwrap();
    }
}

pub(crate) async fn claimed(storage: &dyn SysVvmStorage, name: &str, from: &Slot, entry: &Entry) {
    assert_eq!(storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap(), StepOutcome::Applied);
}

pub(crate) async fn peeked(storage: &dyn SysVvmStorage, name: &str) -> Slot {
    storage.peek(&[slot_of(name)]).await.unwrap().remove(0)
}

pub(crate) fn vacant(epoch: u64) -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(Epoch::new(epoch).unwrap()) })
}

pub(crate) async fn vacated(storage: &dyn SysVvmStorage, name: &str, epoch: u64) {
    let held = entry(epoch, 1, TTL);
    claimed(storage, name, &VACANT, &held).await;
    storage.commit(slot_of(name), Step::release(held.incarnation(), held.epoch)).await.unwrap();
}

/// What stands in a slot under which a forgotten leader may work: a record of no leader, observed for the largest TTL.
pub(crate) fn is_waiting(slot: &Slot, forgotten: u64) -> bool {
    slot.entry().is_some_and(|entry| entry.ttl.get() == TTL && entry.epoch.get() > forgotten)
}

pub(crate) async fn refused_claim(
    storage: &dyn SysVvmStorage,
    name: &str,
    from: &Slot,
    entry: &Entry,
) -> Slot {
    match storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap() {
        StepOutcome::Refused(CurrentState::Slot(stands)) => stands,
        other => panic!("{name}: {other:?} although a forgotten leader may be at work"),
    }
}

/// Sends a step until it is known what became of it: the connection to a server that is gone may end first.
pub(crate) async fn settled(
    storage: &dyn SysVvmStorage,
    name: &str,
    step: Step,
) -> Result<StepOutcome, WriteError> {
    loop {
        match storage.commit(slot_of(name), step.clone()).await {
            Err(WriteError::Unknown(_) | WriteError::NotApplied(_)) => {}
            settled => return settled,
        }
    }
}

macro_rules! failover_suite {
    ($server:ty) => {
        $crate::failover_suite::failover_suite! {
            $server: standby_is_refused_until_it_is_promoted, slot_whose_claim_was_forgotten_is_waited_for,
            largest_ttl_that_the_promoted_server_forgot_is_waited_for,
            observation_does_not_continue_across_a_fail_over,
            look_after_a_fail_over_shows_a_new_version_and_no_smaller_epoch, epoch_is_not_given_out_again,
            leader_of_the_old_history_is_replaced
        }
    };
    ($server:ty: $($case:ident),+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            $crate::failover_suite::$case::<$server>().await;
        }
    )+};
}

pub(crate) use failover_suite;

/// On a server of 30 connections, one of them the caller's. `held` counts those of candidates, `fill` takes the rest.
pub(crate) async fn candidates_that_wait_leave_a_third_of_the_connections_and_a_leader_keeps_its_own<T>(
    url: &str,
    held: impl AsyncFn() -> i64,
    fill: impl AsyncFn() -> Vec<T>,
) {
    init_storage(url).await.unwrap();
    let (mut candidates, at) = (Vec::new(), slot_of("slot"));
    for number in 1..=50 {
        let candidate = opened(url).await.unwrap();
        assert_eq!(peeked(&*candidate, "slot").await, VACANT);
        candidates.push(candidate);
        // With the caller's own, they are two thirds.
        while held().await > number.min(19) {
            tokio::task::yield_now().await;
        }
    }
    let waiting = held().await;
    println!("{} candidates hold {waiting} of 30 connections", candidates.len());
    assert!(waiting >= 15, "{waiting}");
    // Of the last one none was left. It leads, and looks for requests.
    let leader = candidates.last().unwrap();
    claimed(&**leader, "slot", &VACANT, &entry(1, 1, TTL)).await;
    assert_ne!(leader.peek(&[at]).await.unwrap(), [VACANT]);
    assert_eq!(held().await, waiting + 1, "that of the leader");
    let others = fill().await;
    let parts = ["has no connection left for this login", "max_connections"];
    is_refused(url, OpenErrorKind::Passing, &parts).await;
    drop(others);
}

pub(crate) async fn standby_is_refused_until_it_is_promoted<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let standby = S::hosts(&pair.standby.address().to_string());
    let error = opened(&standby).await.expect_err("opened");
    assert!(error.to_string().contains("read-only") && error.is_passing(), "{error}");
    pair.cut().await;
    pair.fail_over();
    assert!(opened(&standby).await.is_ok());
}

pub(crate) async fn slot_whose_claim_was_forgotten_is_waited_for<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let leader = pair.open().await;
    vacated(&*leader, "released", 5).await;
    pair.cut().await;
    claimed(&*leader, "released", &vacant(5), &entry(6, 1, TTL)).await;
    claimed(&*leader, "new", &VACANT, &entry(6, 1, TTL)).await;
    let before = pair.open().await;
    pair.fail_over();
    let after = pair.open().await;
    for candidate in [&before, &after] {
        for (name, from) in [("released", vacant(5)), ("new", VACANT)] {
            let stands = refused_claim(&**candidate, name, &from, &entry(7, 1, TTL)).await;
            assert!(is_waiting(&stands, 6), "{name}: {stands:?}");
            assert_eq!(candidate.read(slot_of(name)).await.unwrap(), stands, "{name}");
        }
    }
    let stands = after.read(slot_of("released")).await.unwrap();
    let next = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&*after, "released", &stands, &next).await;
}

pub(crate) async fn largest_ttl_that_the_promoted_server_forgot_is_waited_for<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let (early, long) = (pair.open().await, Duration::from_secs(9));
    let raised = pair.url().replace("max_ttl=2s", "max_ttl=9s");
    pair.cut().await;
    // The standby has not heard of the raised bound, nor of the claims that it allows.
    init_storage(&raised).await.unwrap();
    let leader = pair.open().await;
    for name in ["old", "new"] {
        claimed(&*leader, name, &VACANT, &entry(5, 1, long)).await;
    }
    pair.fail_over();
    // One that opened before knows no more than the new server does.
    let adopted = refused_claim(&*early, "old", &VACANT, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&adopted, 0), "{adopted:?}");
    // The handle that knows it, and a newcomer whose URL says it, make all wait anew, and new slots as well.
    let told = opened(&raised).await.unwrap();
    for (candidate, name) in [(&leader, "old"), (&told, "old"), (&early, "old"), (&told, "new")] {
        let stands = refused_claim(&**candidate, name, &VACANT, &entry(6, 1, TTL)).await;
        let record = stands.entry().unwrap();
        assert_eq!(record.ttl.get(), long, "{name}: {stands:?}");
        assert_ne!(Some(record.version), adopted.entry().map(|adopted| adopted.version), "{name}");
    }
}

pub(crate) async fn observation_does_not_continue_across_a_fail_over<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    let (first, second) = (entry(5, 1, TTL), entry(5, 2, TTL));
    claimed(&*leader, "slot", &VACANT, &first).await;
    let observed = peeked(&*observer, "slot").await;
    pair.cut().await;
    // The renewal is forgotten: the version that the observer has seen stands again, as old as it was.
    assert_eq!(
        leader.commit(slot_of("slot"), Step::renew(&first, &second)).await.unwrap(),
        StepOutcome::Applied
    );
    pair.fail_over();
    let stands = refused_claim(&*observer, "slot", &observed, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&stands, 5) && stands != observed, "{stands:?}");
    assert_eq!(peeked(&*observer, "slot").await, stands);
    let newcomer = pair.open().await;
    assert_eq!(peeked(&*newcomer, "slot").await, stands);
}

pub(crate) async fn look_after_a_fail_over_shows_a_new_version_and_no_smaller_epoch<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    vacated(&*leader, "slot", 5).await;
    assert_eq!(peeked(&*observer, "slot").await, vacant(5));
    pair.cut().await;
    claimed(&*leader, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert_eq!(peeked(&*observer, "slot").await.last_epoch(), Epoch::new(6).ok());
    pair.fail_over();
    // The plain look adopts: no candidate sees epoch 5 again.
    let stands = peeked(&*observer, "slot").await;
    assert!(is_waiting(&stands, 6), "{stands:?}");
    assert_eq!(observer.shown_ages(&[slot_of("slot")]).await.unwrap(), [None], "no leader wrote it");
}

pub(crate) async fn epoch_is_not_given_out_again<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let leader = pair.open().await;
    vacated(&*leader, "slot", 5).await;
    pair.cut().await;
    // As elections choose it, with a clock that is hours ahead.
    let hours_ahead = SystemWallClock.since_unix_epoch().as_millis() as u64 + 23 * 3_600_000;
    claimed(&*leader, "slot", &vacant(5), &entry(hours_ahead, 1, TTL)).await;
    pair.fail_over();
    let stands = refused_claim(&*pair.open().await, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert!(stands.last_epoch().unwrap().get() > hours_ahead, "{stands:?}");
}

pub(crate) async fn leader_of_the_old_history_is_replaced<S: Promotable>() {
    let mut pair = Pair::<S>::start().await;
    let leader = pair.open().await;
    let held = entry(5, 1, TTL);
    claimed(&*leader, "slot", &VACANT, &held).await;
    pair.cut().await;
    pair.fail_over();
    // The row is there, as it was written. Only the server's history shows that it is another server.
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    let renewal = Step::renew(&held, &entry(5, 2, TTL));
    let release = Step::release(held.incarnation(), held.epoch);
    for step in [Step::batch(&fence, &[]), renewal.clone(), release] {
        let written = settled(&*leader, "slot", step.clone()).await;
        assert!(matches!(written, Err(WriteError::Replaced(_))), "{step:?}: {written:?}");
    }
    // After another candidate has adopted the history, the record itself is another one.
    let stands = refused_claim(&*pair.open().await, "slot", &VACANT, &entry(6, 1, TTL)).await;
    peeked(&*leader, "slot").await;
    assert_eq!(settled(&*leader, "slot", renewal).await.unwrap(), StepOutcome::Refused(stands.into()));
}
