//! One host through outages, on a storage in memory and a clock that the test moves.

use super::*;
use crate::successor::SuccessorSettings;
use crate::{
    history,
    left_behind::OnClaim,
    status::tests::{PanicsOnce, Scene, host_storage, in_steps, key, record},
};
use ielections::{
    Epoch, Slot, TtlStorage as _, Vacant, Version,
    successor::{PeerInbox, PeerLink as _, PeerMessage, SupportPeriod},
    testing::env,
};
use parking_lot::Mutex;
use std::{future::pending, time::Duration};
use vvm_clock::{Clock as _, Instant};
use vvm_orch::service_fn;
use vvm_storage::{
    Partition, Stage, Step, StepOutcome, SysVvmStorage,
    testing::{FaultyStorage, Layer, Outage},
};

const OUTAGES: [Outage; 3] = [Outage::Full, Outage::Away, Outage::Silent];

/// A look, and the call that was in flight when the outage ended.
const ONE_LOOK: Duration = Duration::from_secs(3);

impl Scene {
    async fn run(test: impl AsyncFnOnce(&Self)) {
        Self::of("here").run_host(None, None, test).await;
    }

    async fn run_host(
        self,
        on_claim: Option<OnClaim>,
        successor: Option<Arc<UdpPeerLink>>,
        test: impl AsyncFnOnce(&Self),
    ) {
        self.run_work(Duration::ZERO, on_claim, successor, test).await;
    }

    async fn run_work(
        self,
        stops_within: Duration,
        on_claim: Option<OnClaim>,
        successor: Option<Arc<UdpPeerLink>>,
        test: impl AsyncFnOnce(&Self),
    ) {
        let clock = self.clock.clone();
        let work = || {
            let clock = clock.clone();
            vec![service_fn("work", async move |cx: ServiceContext<_>| {
                cx.stop.cancelled().await;
                clock.sleep(stops_within).await;
                Ok(())
            })]
        };
        self.run_services(work, on_claim, successor, test).await;
    }

    async fn run_services(
        self,
        services: impl FnMut() -> Services + Send,
        on_claim: Option<OnClaim>,
        successor: Option<Arc<UdpPeerLink>>,
        test: impl AsyncFnOnce(&Self),
    ) -> HostOutcome {
        let scene = self;
        let campaigns = Campaigns {
            settings: HostSettings::new("", "payroll"),
            env: env(&scene.clock),
            status: Arc::clone(&scene.status),
            stop: CancellationToken::new(),
            condition: Condition::default(),
            successor,
        };
        let storage = Arc::new(host_storage(&scene.faulty, &scene.status).reporting_claims(on_claim));
        let after = |_: &_| Next::CampaignAfter(Duration::ZERO);
        let running = campaigns.run(&storage, services, after, Instant::NEVER);
        let testing = async {
            test(&scene).await;
            campaigns.stop.cancel();
        };
        in_steps(&scene.clock, Duration::from_millis(50), async { tokio::join!(running, testing).0 }).await
    }

    async fn becomes(&self, role: &str) -> Duration {
        let began = self.clock.now();
        let mut roles = self.status.roles();
        roles.wait_for(|now| now.word() == role).await.unwrap();
        began.until(self.clock.now())
    }

    async fn works_again(&self) -> Duration {
        let began = self.clock.now();
        while self.status.is_troubled() {
            self.clock.sleep(Duration::from_millis(50)).await;
        }
        began.until(self.clock.now())
    }
}

/// The release of the lost leadership failed. Its work has ended, so the record protects nothing (I6).
#[tokio::test]
async fn sole_candidate_leads_again_at_the_end_of_an_outage() {
    for outage in OUTAGES {
        Scene::run(async |scene| {
            scene.becomes("leading").await;
            scene.faulty.set_outage(Some(outage));
            scene.becomes("campaigning").await;
            let trouble = scene.status.storage_trouble();
            assert!(trouble.is_some_and(|trouble| trouble.starts_with("trouble with the storage for ")));
            // Its own record has not expired.
            scene.clock.sleep(Duration::from_secs(1)).await;
            scene.faulty.set_outage(None);
            let took = scene.works_again().await + scene.becomes("leading").await;
            assert!(took <= ONE_LOOK, "{outage:?}: {took:?}");
        })
        .await;
    }
}

/// The history can't be written then, and to read it must not delay the release past the kill deadline.
#[tokio::test]
async fn work_that_stops_in_time_after_a_loss_is_released_before_the_kill_deadline() {
    for outage in OUTAGES {
        let test = async |scene: &Scene| {
            scene.becomes("leading").await;
            scene.faulty.set_outage(Some(outage));
            scene.becomes("stopping").await;
            let kill_at = scene.status.role().leadership().unwrap().standing.kill_at();
            while scene.status.late_ends().is_empty() {
                scene.clock.sleep(Duration::from_millis(50)).await;
            }
            assert!(scene.clock.now() < kill_at, "{outage:?}");
        };
        Scene::of("here").run_work(Duration::from_millis(2500), None, None, test).await;
    }
}

/// The loss alone would let it campaign again. Shows I6.
#[tokio::test]
async fn host_does_not_campaign_beside_what_a_panic_leaves_after_a_loss() {
    let mut campaigns = 0;
    let services = || {
        campaigns += 1;
        vec![service_fn("work", async |cx: ServiceContext<_>| {
            cx.stop.cancelled().await;
            panic!("on purpose");
        })]
    };
    let test = async |scene: &Scene| {
        scene.becomes("leading").await;
        let led = scene.status.leads().unwrap().0.standing;
        scene.other.compare_and_delete(&key(), led.incarnation(), led.epoch()).await.unwrap();
        scene.becomes("stopping").await;
        scene.clock.sleep(scene.status.candidate.ttl.get()).await;
    };
    let ended = Scene::of("here").run_services(services, None, None, test).await;
    assert!(matches!(ended, HostOutcome::Problem(Problem::Panicked { .. })), "{ended}");
    assert_eq!(campaigns, 1);
}

#[tokio::test]
async fn reminder_of_an_outage_comes_once_a_minute_with_its_cause() {
    for outage in OUTAGES {
        Scene::run(async |scene| {
            scene.becomes("leading").await;
            scene.faulty.set_outage(Some(outage));
            scene.becomes("campaigning").await;
            let mut reminders = vec![scene.status.trouble_logged_at().unwrap()];
            while reminders.len() < 4 {
                scene.clock.sleep(Duration::from_millis(50)).await;
                let logged_at = scene.status.trouble_logged_at().unwrap();
                if !reminders.contains(&logged_at) {
                    reminders.push(logged_at);
                    let said = scene.status.storage_trouble().unwrap();
                    let cause = scene.status.storage_problem().unwrap();
                    assert!(
                        said.starts_with("trouble with the storage for ") && said.ends_with(&*cause),
                        "{said}"
                    );
                }
            }
            for pair in reminders.windows(2) {
                let apart = pair[0].until(pair[1]);
                let longest = Duration::from_secs(60) + 3 * ONE_LOOK;
                assert!(apart >= Duration::from_secs(60) && apart <= longest, "{outage:?}: {apart:?}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn standby_reports_the_end_of_an_outage_at_once() {
    for outage in OUTAGES {
        Scene::run(async |scene| {
            scene.faulty.set_outage(Some(outage));
            while !scene.status.is_troubled() {
                scene.clock.sleep(Duration::from_millis(50)).await;
            }
            let mut held = record(7);
            scene.other.insert_if_not_exist(&key(), Vacant::default(), &held).await.unwrap();
            scene.clock.sleep(ONE_LOOK).await;
            assert!(scene.status.is_troubled(), "{outage:?}");
            scene.faulty.set_outage(None);
            let renewed = held.renewed(Version { write: 2, ..held.version });
            scene.other.compare_and_swap(&key(), &held, &renewed).await.unwrap();
            held = renewed;
            let took = scene.works_again().await;
            assert!(took <= ONE_LOOK, "{outage:?}: {took:?}");
            let Slot::Held { entry, .. } = scene.other.get(&key()).await.unwrap() else { panic!() };
            assert_eq!(entry, held, "it has claimed");
        })
        .await;
    }
}

#[tokio::test]
async fn leader_reports_the_end_of_an_outage_with_its_next_renewal() {
    for outage in OUTAGES {
        Scene::run(async |scene| {
            scene.becomes("leading").await;
            scene.faulty.set_outage(Some(outage));
            while !scene.status.is_troubled() {
                scene.clock.sleep(Duration::from_millis(50)).await;
            }
            scene.faulty.set_outage(None);
            let took = scene.works_again().await;
            assert!(took <= ONE_LOOK, "{outage:?}: {took:?}");
            scene.clock.sleep(Terms::POLL).await;
            assert!(scene.status.leads().is_some(), "{outage:?}");
        })
        .await;
    }
}

/// A standby takes over as soon as the storage answers, and knows only that the record was not renewed.
#[tokio::test]
async fn end_of_a_leadership_that_was_lost_in_an_outage_is_recorded_under_the_next_leader() {
    Scene::run(async |scene| {
        scene.becomes("leading").await;
        let led = scene.status.leads().unwrap().0.standing;
        scene.clock.sleep(Duration::from_secs(1)).await;
        scene.faulty.set_outage(Some(Outage::Away));
        scene.becomes("campaigning").await;
        scene.clock.sleep(Duration::from_secs(300)).await;
        scene.other.compare_and_delete(&key(), led.incarnation(), led.epoch()).await.unwrap();
        let next = record(Epoch::MAX / 2);
        let vacant = Vacant { last_epoch: Some(led.epoch()) };
        scene.other.insert_if_not_exist(&key(), vacant, &next).await.unwrap();
        scene.faulty.set_outage(None);
        scene.clock.sleep(ONE_LOOK).await;
        let history = history::read(&scene.other, &key()).await.unwrap();
        let [past] = &history[..] else { panic!("{history:?}") };
        assert_eq!(past.epoch, led.epoch().get());
        assert!(past.end.as_ref().is_some_and(|end| end.starts_with("leadership lost: ")), "{past:?}");
        let lasted = Duration::from_millis(past.ended_ms.unwrap() - past.started_ms);
        assert!(lasted < scene.status.candidate.ttl.get(), "{past:?}");
    })
    .await;
}

#[derive(Debug)]
struct LateClaim {
    storage: Arc<dyn SysVvmStorage>,
    first: Mutex<Option<(Partition, Step)>>,
    claims: Mutex<Vec<Incarnation>>,
}

#[async_trait]
impl Layer for LateClaim {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        if let Step::Claim { to, .. } = &step {
            self.claims.lock().push(to.incarnation());
            if self.claims.lock().len() == 1 {
                *self.first.lock() = Some((at, step));
                return Err(WriteError::Unknown("no answer".into()));
            }
            let first = self.first.lock().take();
            if let Some((at, first)) = first {
                self.storage.commit(at, first).await?;
            }
        }
        self.storage.commit(at, step).await
    }
}

/// Not always that of the last claim. Otherwise its guardian could not release the record, and a fail-over takes a TTL.
#[tokio::test]
async fn guardian_knows_the_claim_that_won_when_the_work_starts() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    let on_claim: OnClaim = Box::new(move |claim| reported.lock().push(claim.map(|claim| claim.incarnation)));
    let mut scene = Scene::of("here");
    let late = LateClaim {
        storage: Arc::clone(&scene.faulty).into_storage(),
        first: Mutex::new(None),
        claims: Mutex::new(Vec::new()),
    };
    scene.faulty = FaultyStorage::over(Arc::new(late).into_storage());
    let test = async |scene: &Scene| {
        scene.becomes("leading").await;
        let led = scene.status.leads().unwrap().0.standing.incarnation();
        let reports = reports.lock().clone();
        let [first, second, rest @ ..] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!(*first, Some(led), "the first claim has won");
        assert_ne!(second, first);
        assert_eq!(rest.last(), Some(first), "{reports:?}");
    };
    scene.run_host(Some(on_claim), None, test).await;
}

/// A look after the failed write shows the same request, which is no change.
#[tokio::test]
async fn standby_accepts_a_step_down_although_its_first_write_failed() {
    Scene::run(async |scene| {
        let (cluster, leader) = (key().cluster, record(7));
        scene.other.insert_if_not_exist(&key(), Vacant::default(), &leader).await.unwrap();
        scene.faulty.set_outage(Some(Outage::Full));
        let ask = Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::ZERO };
        scene.other.ask_step_down(&key(), leader.epoch, None, leader.ttl, ask).await.unwrap();
        let stage = async || {
            let (_, requests) = scene.other.scan_with_requests(&cluster, &[]).await.unwrap();
            requests.step_down.map(|request| request.stage)
        };
        scene.clock.sleep(ONE_LOOK).await;
        assert_eq!(stage().await, Some(Stage::Asked));
        scene.faulty.set_outage(None);
        scene.clock.sleep(ONE_LOOK).await;
        assert_eq!(stage().await, Some(Stage::Accepted));
    })
    .await;
}

#[tokio::test]
async fn leader_heeds_a_pause_after_a_look_that_panicked() {
    let mut scene = Scene::of("here");
    let storage = Arc::clone(&scene.faulty).into_storage();
    let panics = Arc::new(PanicsOnce::over(storage));
    scene.faulty = FaultyStorage::over(Arc::clone(&panics).into_storage());
    let test = async |scene: &Scene| {
        scene.becomes("leading").await;
        panics.at_next("peek_some");
        while panics.will_panic() {
            scene.clock.sleep(Duration::from_millis(50)).await;
        }
        let ask = Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::ZERO };
        scene.other.pause(&key().cluster, &record(7).holder, ask).await.unwrap();
        scene.becomes("stopping").await;
    };
    scene.run_host(None, None, test).await;
}

#[tokio::test]
async fn work_starts_and_its_end_is_recorded_although_a_read_before_each_panics() {
    let mut scene = Scene::of("here");
    let (storage, other) = (Arc::clone(&scene.faulty).into_storage(), scene.other.clone());
    let panics = Arc::new(PanicsOnce::over(storage));
    scene.faulty = FaultyStorage::over(Arc::clone(&panics).into_storage());
    panics.at_next("read");
    let test = async |scene: &Scene| {
        scene.clock.sleep(ONE_LOOK).await;
        assert_eq!(scene.status.role().word(), "leading");
        assert!(!panics.will_panic());
        panics.at_next("read");
    };
    scene.run_host(None, None, test).await;
    assert!(!panics.will_panic());
    let history = history::read(&other, &key()).await.unwrap();
    assert_eq!(history[0].end.as_deref(), Some("stop requested"));
}

#[derive(Debug)]
struct NoWrite {
    storage: Arc<dyn SysVvmStorage>,
    written: CancellationToken,
}

#[async_trait]
impl Layer for NoWrite {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn commit(&self, _at: Partition, _step: Step) -> Result<StepOutcome, WriteError> {
        self.written.cancel();
        pending().await
    }
}

#[tokio::test]
async fn stop_of_a_standby_does_not_wait_for_the_write_of_a_request() {
    let mut scene = Scene::of("here");
    let (clock, leader, written) = (scene.clock.clone(), record(7), CancellationToken::new());
    let no_write = NoWrite { storage: Arc::clone(&scene.faulty).into_storage(), written: written.clone() };
    scene.faulty = FaultyStorage::over(Arc::new(no_write).into_storage());
    let mut stopped_at = None;
    let test = async |scene: &Scene| {
        scene.other.insert_if_not_exist(&key(), Vacant::default(), &leader).await.unwrap();
        let ask = Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::ZERO };
        scene.other.ask_step_down(&key(), leader.epoch, None, leader.ttl, ask).await.unwrap();
        written.cancelled().await;
        stopped_at = Some(scene.clock.now());
    };
    scene.run_host(None, None, test).await;
    let took = stopped_at.unwrap().until(clock.now());
    assert!(took <= Duration::from_millis(100), "{took:?}");
}

fn link(scene: &Scene) -> Arc<UdpPeerLink> {
    let settings = SuccessorSettings::new((std::net::Ipv4Addr::LOCALHOST, 0).into());
    let period = SupportPeriod::new(settings.period, scene.status.candidate.ttl).unwrap();
    Arc::new(UdpPeerLink::bind(&settings, period, &key(), &env(&scene.clock)).unwrap())
}

/// It has asked its leader, which stops, too, and waits for the answer.
#[tokio::test]
async fn standby_that_wins_after_it_was_stopped_starts_no_work() {
    let scene = Scene::of("here");
    let (link, status, other) = (link(&scene), Arc::clone(&scene.status), scene.other.clone());
    let asked = CancellationToken::new();
    let leader = record(7);
    let releasing = async {
        asked.cancelled().await;
        other.compare_and_delete(&key(), leader.incarnation(), leader.epoch).await.unwrap();
    };
    let test = async |scene: &Scene| {
        other.insert_if_not_exist(&key(), Vacant::default(), &leader).await.unwrap();
        scene.clock.sleep(ONE_LOOK).await;
        let asked = asked.clone();
        link.connect(PeerInbox::new(move |message| {
            if matches!(message, PeerMessage::Stop) {
                asked.cancel();
            }
        }));
    };
    tokio::join!(scene.run_host(None, Some(Arc::clone(&link)), test), releasing);
    let vacant = other.get(&key()).await.unwrap();
    assert!(matches!(vacant, Slot::Vacant(_)) && vacant.last_epoch() > Some(leader.epoch), "{vacant:?}");
    assert_eq!(status.telemetry.leaderships.get(), 0);
}

/// The host is killed soon after its guardian, and perhaps before the release. Shows I1 with the cases of succession.
#[tokio::test]
async fn planned_stop_withdraws_the_successor_unless_the_guardian_has_died() {
    for (why, withdraws) in [(WhyStopping::Asked, true), (WhyStopping::GuardianDied, false)] {
        let scene = Scene::of("here");
        let link = link(&scene);
        let asks = Arc::new(Mutex::new(0));
        let test = async |scene: &Scene| {
            scene.becomes("leading").await;
            let asks = Arc::clone(&asks);
            link.connect(PeerInbox::new(move |message| {
                *asks.lock() += usize::from(matches!(message, PeerMessage::Stop));
            }));
            scene.status.stops(why.clone());
        };
        scene.run_host(None, Some(Arc::clone(&link)), test).await;
        assert_eq!(*asks.lock(), usize::from(withdraws), "{why}");
    }
}
