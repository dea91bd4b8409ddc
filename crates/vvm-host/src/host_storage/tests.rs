use super::*;
use crate::{
    LocalDir,
    requests::{StopDemand, may_work},
    status::tests::{Scene as Process, host_storage, in_steps, key, record},
};
use futures_util::FutureExt as _;
use ielections::{Holder, Ttl};
use std::time::Duration;
use testing_time::MockClock;
use vvm_clock::Clock as _;
use vvm_storage::{
    Ask, Stage, StageChange,
    testing::{FaultyStorage, Outage},
};

const FIRST_CHANCE: Duration = Duration::from_secs(3);

struct Scene {
    clock: MockClock,
    storage: ElectionsTtlStorage,
    host: HostStorage,
    faulty: Arc<FaultyStorage>,
}

fn ask() -> Ask {
    Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::from_secs(1) }
}

impl Scene {
    async fn of(holder: &str) -> Self {
        let Process { clock, status, faulty, other: storage } = Process::of(holder);
        let host = host_storage(&faulty, &status);
        let scene = Self { clock, storage, host, faulty };
        let first = record(1);
        scene.storage.insert_if_not_exist(&key(), Vacant::default(), &first).await.unwrap();
        scene.storage.compare_and_delete(&key(), first.incarnation(), first.epoch).await.unwrap();
        scene.host.scan(&[key()]).await.unwrap();
        scene
    }

    async fn claim(&self) -> Result<Claim, String> {
        let vacant = Vacant { last_epoch: Some(record(1).epoch) };
        match self.host.insert_if_not_exist(&key(), vacant, &record(2)).await {
            Ok(claim) => Ok(claim),
            Err(WriteError::NotApplied(cause)) => Err(cause.to_string()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes a step-down request and advances it to the stage `Begun`. Claims are not refused before that stage.
    async fn begun(&self, to: Option<&str>) {
        let to = to.map(|to| Holder::new(to).unwrap());
        let (of, first_chance) = (record(1).epoch, Ttl::new(FIRST_CHANCE).unwrap());
        let mut stands =
            self.storage.ask_step_down(&key(), of, to.as_ref(), first_chance, ask()).await.unwrap();
        for stage in [Stage::Accepted, Stage::Begun] {
            self.host.scan(&[key()]).await.unwrap();
            if stage == Stage::Accepted {
                assert!(self.host.may_claim(&key(), Some(of)).is_ok());
            }
            let StageChange::Done(request) = &stands else { panic!("{stands:?}") };
            stands = self.storage.advance_step_down(&key().cluster, request, stage).await.unwrap();
        }
        self.host.scan(&[key()]).await.unwrap();
    }
}

/// The check before a claim looks at the last scan. The one after it reads anew, and not by a scan, which may be
/// stale: here scans show no request at all.
#[tokio::test]
async fn claim_sent_before_the_pause_is_seen_starts_no_work() {
    let scene = Scene::of("a").await;
    scene.faulty.hide_requests();
    let may_work = async || in_steps(&scene.clock, Duration::from_secs(1), may_work(&scene.host)).await;
    assert_eq!(may_work().await, Ok(()));
    let alice = Holder::new("alice").unwrap();
    let (pause, _) = scene.storage.pause(&key().cluster, &alice, ask()).await.unwrap();
    assert_eq!(scene.claim().await, Ok(Claim::Claimed));
    assert_eq!(may_work().await, Err(StopDemand::Paused(pause.clone())));
    scene.storage.resume(&key().cluster, &pause).await.unwrap();
    assert_eq!(may_work().await, Ok(()));
}

#[tokio::test]
async fn pause_refuses_claims_until_it_is_resumed() {
    let scene = Scene::of("a").await;
    let alice = Holder::new("alice: upgrade").unwrap();
    let (pause, _) = scene.storage.pause(&key().cluster, &alice, ask()).await.unwrap();
    scene.host.scan(&[key()]).await.unwrap();
    assert_eq!(scene.claim().await, Err("paused by alice: upgrade".into()));
    scene.storage.resume(&key().cluster, &pause).await.unwrap();
    scene.host.scan(&[key()]).await.unwrap();
    assert_eq!(scene.claim().await, Ok(Claim::Claimed));
}

#[tokio::test]
async fn work_does_not_start_if_the_pause_cannot_be_read() {
    let scene = Scene::of("a").await;
    scene.host.close().await;
    let began = scene.clock.now();
    let answer = in_steps(&scene.clock, Duration::from_secs(1), may_work(&scene.host)).await;
    assert!(matches!(answer, Err(StopDemand::PauseUnseen(_))), "{answer:?}");
    assert_eq!(began.until(scene.clock.now()), Ttl::DEFAULT.get() / 4, "an acquisition is fresh so long");
}

#[tokio::test]
async fn scan_without_the_requests_shows_no_slot() {
    let scene = Scene::of("a").await;
    let mut seen = [None];
    scene.host.scan_some(&[key()], &mut seen).await.unwrap();
    assert!(seen[0].is_some());
    scene.faulty.hide_requests();
    let outcome = scene.host.scan_some(&[key()], &mut seen).await;
    assert!(matches!(outcome, Err(ReadError::Unavailable(_))), "{outcome:?}");
    assert_eq!(seen, [None], "a candidate could claim it in a pause");
}

#[tokio::test]
async fn look_at_slots_and_requests_is_one_call() {
    let scene = Scene::of("a").await;
    let alice = Holder::new("alice").unwrap();
    let (pause, _) = scene.storage.pause(&key().cluster, &alice, ask()).await.unwrap();
    let reads = || scene.host.status.telemetry.calls(Call::Read).get();
    let before = reads();
    scene.host.scan_some(&[key()], &mut [None]).await.unwrap();
    assert_eq!(scene.host.requests().borrow().pause.as_ref(), Some(&pause));
    assert_eq!(reads() - before, 1);
}

/// The first chance counts from the first claim that was refused.
#[tokio::test]
async fn step_down_to_a_named_standby_defers_all_others() {
    let other = Scene::of("a").await;
    other.begun(Some("b")).await;
    other.clock.advance(FIRST_CHANCE * 10);
    assert_eq!(other.claim().await, Err("b has the first chance".into()));
    other.clock.advance(FIRST_CHANCE - Duration::from_millis(1));
    assert_eq!(other.claim().await, Err("b has the first chance".into()));
    other.clock.advance(Duration::from_millis(1));
    assert_eq!(other.claim().await, Ok(Claim::Claimed));

    let named = Scene::of("b").await;
    named.begun(Some("b")).await;
    assert_eq!(named.claim().await, Ok(Claim::Claimed));
}

#[tokio::test]
async fn step_down_without_a_name_defers_only_the_former_leader() {
    let other = Scene::of("a").await;
    other.begun(None).await;
    assert_eq!(other.claim().await, Ok(Claim::Claimed));

    let former = Scene::of("a").await;
    former.host.let_others_first(key().slot, record(1).epoch, FIRST_CHANCE);
    assert_eq!(former.claim().await, Err("other candidates have the first chance".into()));
    former.clock.advance(FIRST_CHANCE);
    assert_eq!(former.claim().await, Ok(Claim::Claimed));

    let later = Scene::of("a").await;
    later.host.let_others_first(key().slot, Epoch::new(7).unwrap(), FIRST_CHANCE);
    assert_eq!(later.claim().await, Ok(Claim::Claimed));
}

#[tokio::test]
async fn step_down_request_left_behind_is_ignored_after_its_lifetime() {
    let scene = Scene::of("a").await;
    let (of, first_chance) = (record(1).epoch, Ttl::new(FIRST_CHANCE).unwrap());
    let to = Holder::new("b").unwrap();
    let asked = scene.storage.ask_step_down(&key(), of, Some(&to), first_chance, ask()).await.unwrap();
    let StageChange::Done(request) = asked else { panic!("{asked:?}") };
    assert_eq!(scene.host.look_at_requests().await.unwrap().0.step_down.as_ref(), Some(&request));
    scene.clock.advance(request.lifetime());
    // Standby `b` comes hours later and accepts.
    let accepted = scene.storage.advance_step_down(&key().cluster, &request, Stage::Accepted).await.unwrap();
    let StageChange::Done(request) = accepted else { panic!("{accepted:?}") };
    assert_eq!(scene.host.look_at_requests().await.unwrap(), (OperatorRequests::default(), Some(request)));
    assert_eq!(scene.host.requests().borrow().step_down, None);
}

#[tokio::test]
async fn take_over_without_an_answer_is_counted_when_a_read_shows_it() {
    let scene = Scene::of("a").await;
    let (first, second) = (record(2), record(3));
    scene.claim().await.unwrap();
    scene.faulty.set_outage(Some(Outage::Away));
    let unknown = scene.host.take_over(&key(), &first, &second).await;
    assert!(matches!(unknown, Err(WriteError::Unknown(_))), "{unknown:?}");
    scene.faulty.set_outage(None);
    // The storage has carried it out.
    assert_eq!(scene.storage.take_over(&key(), &first, &second).await.unwrap(), Claim::Claimed);
    let count = || scene.host.status.telemetry.take_overs.get();
    assert_eq!(count(), 0);
    for _read in 0..2 {
        scene.host.get(&key()).await.unwrap();
        assert_eq!(count(), 1);
    }
}

/// The guardian has to know the record of every claim that may be applied.
#[tokio::test]
async fn claim_is_reported_before_it_is_sent_until_its_record_is_gone() {
    let Scene { storage, host, .. } = Scene::of("a").await;
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    let host = host.reporting_claims(Some(Box::new(move |claim| {
        let stored = storage.get(&key()).now_or_never().unwrap().unwrap().last_epoch();
        reported.lock().push((claim.map(|claim| claim.epoch), stored));
    })));
    let [before, first, second] = [record(1), record(2), record(3)];
    let vacant = Vacant { last_epoch: Some(before.epoch) };
    host.insert_if_not_exist(&key(), vacant, &first).await.unwrap();
    let refused = host.insert_if_not_exist(&key(), vacant, &second).await.unwrap();
    assert!(matches!(refused, Claim::Refused(_)), "{refused:?}");
    host.take_over(&key(), &first, &second).await.unwrap();
    host.compare_and_delete(&key(), first.incarnation(), first.epoch).await.unwrap();
    host.compare_and_delete(&key(), second.incarnation(), second.epoch).await.unwrap();
    let expected = [
        (Some(&first), &before),
        (Some(&second), &first),
        (None, &first),
        (Some(&second), &first),
        (None, &second),
    ];
    let expected = expected.map(|(claim, stored)| (claim.map(|claim| claim.epoch), Some(stored.epoch)));
    assert_eq!(*reports.lock(), expected);
}

#[tokio::test]
async fn wake_ups_cause_one_look_in_a_gap_and_none_is_lost() {
    let Scene { clock, host, .. } = Scene::of("a").await;
    let folder = tempfile::tempdir().unwrap();
    let dir = LocalDir::At(folder.path().join("local"));
    let join = || LocalWakeups::join(&dir, "payroll").unwrap();
    let (host, other, third) = (HostStorage { wakeups: join(), ..host }, join(), join());
    (0..100).for_each(|_| other.wake());
    for _ in 0..2 {
        third.woken().await;
        host.woken().now_or_never();
        other.wake();
    }
    third.woken().await;
    assert!(host.woken().now_or_never().is_none());
    clock.advance(Terms::HINT_GAP);
    host.woken().await;
    clock.advance(Terms::HINT_GAP);
    assert!(host.woken().now_or_never().is_none());
}

#[tokio::test]
async fn record_that_could_not_be_deleted_is_known_until_a_read_shows_that_it_is_gone() {
    let scene = Scene::of("a").await;
    let (before, own) = (record(1), record(2));
    scene.claim().await.unwrap();
    scene.faulty.set_outage(Some(Outage::Away));
    scene.host.compare_and_delete(&key(), own.incarnation(), own.epoch).await.unwrap_err();
    let left = [(own.incarnation(), own.epoch)];
    scene.host.saw(&key(), &Slot::Vacant(Vacant { last_epoch: Some(before.epoch) }));
    scene.host.saw(&key(), &Slot::Held { entry: own.clone(), proven_age: None });
    assert_eq!(scene.host.left_behind(), left);
    scene.host.saw(&key(), &Slot::Vacant(Vacant { last_epoch: Some(own.epoch) }));
    assert_eq!(scene.host.left_behind(), []);
}
