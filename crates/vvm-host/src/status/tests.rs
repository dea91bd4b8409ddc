//! What a situation says of itself, with real elections on a clock that only moves when everything is idle.

mod faulty_renewals;

use super::*;
use crate::{host_storage::HostStorage, local_wakeups::LocalWakeups};
use faulty_renewals::{Fault, FaultyRenewals};
use ielections::{
    Candidacy, Elections, Entry, Env, Epoch, Incarnation, Leadership, OsEntropy, Terms, TokioSpawn,
    TtlStorage as _, Vacant, Version,
};
use testing_time::{MockClock, MockWallClock};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

const TTL: Ttl = Ttl::DEFAULT;

/// One process of a cluster in memory.
struct Scene {
    clock: MockClock,
    /// As others reach it.
    database: ElectionsTtlStorage,
    /// As this process reaches it.
    storage: Arc<FaultyRenewals>,
    situation: Arc<HostStatus>,
}

fn run<Test: Future<Output = ()>>(test: impl FnOnce(Scene) -> Test) {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    let time: Arc<dyn Clock> = Arc::new(clock.clone());
    let database = MemDatabase::new(Arc::clone(&time));
    let open = || ElectionsTtlStorage::new(database.open());
    let candidate = Candidate {
        name: "payroll".into(),
        holder: Holder::new("here").unwrap(),
        slots: NonZeroU32::MIN,
        ttl: TTL,
    };
    let scene = Scene {
        clock: clock.clone(),
        database: open(),
        storage: FaultyRenewals::over(database.open()),
        situation: Arc::new(HostStatus::new(candidate, time)),
    };
    let limit = clock.now().after(Duration::from_secs(3600));
    let runtime = Builder::new_current_thread()
        .on_thread_park(move || {
            let next = clock.advance_to_next();
            assert!(next.is_some_and(|now| now < limit), "the test waits for what does not happen");
        })
        .build();
    runtime.unwrap().block_on(test(scene));
}

fn key() -> ElectionKey {
    ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::MIN) }
}

/// Of somebody else.
fn record(epoch: u64) -> Entry {
    let incarnation = Incarnation::from_bytes([7; 16]);
    let (holder, version) = (Holder::new("there").unwrap(), Version { incarnation, write: 1 });
    Entry { holder, version, ttl: TTL, epoch: Epoch::new(epoch).unwrap() }
}

impl Scene {
    async fn acquire(&self) -> Leadership {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let env = Env {
            wall: Arc::new(MockWallClock::new()),
            deadman: Deadman::with_trigger(RecordingTrigger::on(Arc::clone(&clock))),
            entropy: Arc::new(OsEntropy::default()),
            spawn: Arc::new(TokioSpawn::on(Handle::current())),
            clock,
        };
        let storage = Arc::new(ElectionsTtlStorage::new(Arc::clone(&self.storage) as _));
        let wakeups = LocalWakeups::alone(Arc::clone(&env.clock));
        let (status, clock) = (Arc::clone(&self.situation), Arc::clone(&env.clock));
        let storage = HostStorage::new(storage, wakeups, status, clock, CancellationToken::new());
        self.situation.campaigns();
        let terms = Terms::new(self.situation.candidate().holder.clone(), TTL);
        let elections = Elections::new(Arc::new(storage), env);
        let (_, leadership) = elections.acquire(Candidacy { slots: vec![key()], terms }).await.unwrap();
        leadership
    }

    async fn lead(&self) -> Leadership {
        let leadership = self.acquire().await;
        self.situation.starts(1, leadership.standing().clone());
        self.situation.works();
        leadership
    }

    fn losses(&self) -> Vec<(&'static str, u64)> {
        self.situation.telemetry().losses().filter(|(_, count)| *count > 0).collect()
    }

    fn failures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let failures = self.situation.telemetry().failures().filter(|(.., count)| *count > 0);
        failures.map(|(call, failure, count)| (call.word(), failure.word(), count)).collect()
    }
}

fn reason(readiness: Readiness) -> String {
    match readiness {
        Readiness::Ready => "ready".into(),
        Readiness::NotReady(reason) => reason,
    }
}

#[test]
fn a_standby_that_reaches_its_storage_is_ready_and_says_who_leads() {
    run(async |scene| {
        let situation = Arc::clone(&scene.situation);
        assert_eq!(reason(situation.readiness()), "opening the storage");
        situation.storage_is_in_trouble(&"the disk is full");
        assert_eq!(reason(situation.readiness()), "opening the storage: the disk is full");

        scene.database.insert_if_not_exist(&key(), Vacant::default(), &record(3)).await.unwrap();
        let look = async {
            scene.clock.sleep(TTL.get() / 2).await;
            assert_eq!(reason(situation.readiness()), "ready");
            assert!(situation.leads().is_none());
            let others = situation.others();
            assert_eq!(others.len(), 1);
            assert_eq!((others[0].holder.as_str(), others[0].epoch), ("there", record(3).epoch));
        };
        let (leadership, ()) = tokio::join!(scene.lead(), look);
        assert_eq!(situation.telemetry().take_overs(), 1);
        assert_eq!(situation.others(), []);
        leadership.release().await;
    });
}

#[test]
fn a_standby_whose_storage_has_been_of_no_use_for_a_ttl_is_not_ready() {
    run(async |scene| {
        scene.situation.campaigns();
        scene.situation.storage_answered();
        scene.clock.sleep(TTL.get()).await;
        assert_eq!(reason(scene.situation.readiness()), "ready");
        scene.clock.sleep(Duration::from_secs(1)).await;
        scene.situation.storage_failed(Call::Read, Failure::Unavailable, &"no route");
        let reason = reason(scene.situation.readiness());
        assert_eq!(reason, "the storage has been of no use for 21 s: no route");
        scene.situation.storage_answered();
        assert_eq!(scene.situation.readiness(), Readiness::Ready);
        assert_eq!(scene.situation.trouble(), None);
    });
}

#[test]
fn a_leader_leads_while_it_works_and_has_time_left() {
    run(async |scene| {
        let leadership = scene.acquire().await;
        scene.situation.starts(1, leadership.standing().clone());
        assert!(scene.situation.leads().is_none(), "its work has not started");
        scene.situation.works();
        let (leading, margin) = scene.situation.leads().unwrap();
        assert_eq!((leading.slot, margin), (1, TTL.get() * 4 / 5));

        scene.clock.sleep(Duration::from_secs(21)).await;
        let renewals = scene.situation.telemetry().renewals().read();
        assert_eq!((renewals.count, scene.failures()), (4, vec![]));
        assert!(scene.situation.leads().unwrap().1 > TTL.get() / 2);

        scene.situation.stops_by(leadership.standing(), WhyStopping::Asked);
        assert!(scene.situation.leads().is_none(), "its work stops");
        assert!(matches!(scene.situation.role(), Role::Stopping { why: WhyStopping::Asked, .. }));
        leadership.release().await;
        assert_eq!((scene.situation.telemetry().leaderships(), scene.losses()), (1, vec![]));
    });
}

#[test]
fn a_loss_is_counted_once_and_its_reason_stands() {
    run(async |scene| {
        let leadership = scene.lead().await;
        let (epoch, incarnation) = (leadership.epoch(), leadership.incarnation());
        scene.database.compare_and_delete(&key(), incarnation, epoch).await.unwrap();
        let vacant = Vacant { last_epoch: Some(epoch) };
        scene.database.insert_if_not_exist(&key(), vacant, &record(epoch.get() + 1)).await.unwrap();
        leadership.lost().await;
        assert!(scene.situation.leads().is_none(), "nothing is left of it, whatever the role says");
        for why in [WhyStopping::Asked, WhyStopping::WorkEnded] {
            scene.situation.stops_by(leadership.standing(), why);
        }
        assert_eq!(scene.losses(), [("stolen", 1)]);
        let shown = serde_json::to_value(scene.situation.snapshot()).unwrap();
        assert_eq!(shown["leadership"]["loss"], "stolen");
        assert_eq!(
            (&shown["leadership"]["margin_ms"], &shown["others"][0]["holder"]),
            (&0.into(), &"there".into())
        );
        leadership.release().await;
    });
}

#[test]
fn a_renewal_whose_answer_got_lost_counts_once_it_is_found_to_stand() {
    run(async |scene| {
        let leadership = scene.lead().await;
        scene.storage.fail_next(Fault::LostAnswer);
        scene.clock.sleep(Duration::from_secs(7)).await;
        assert_eq!(scene.failures(), [("write", "unknown", 1)]);
        assert_eq!(scene.situation.telemetry().renewals().read().count, 1);
        leadership.release().await;
    });
}

/// Counted on the stack of the driver's poll, where each boxed future is a frame: the driver's own, and that
/// of the one layer that a host has.
#[test]
fn renewal_of_a_host_passes_two_boxed_futures() {
    run(async |scene| {
        let leadership = scene.lead().await;
        scene.clock.sleep(TTL.get()).await;
        let stack = scene.storage.stack();
        let engine = stack.find("Engine<K,C> as core::future::future::Future>::poll");
        let between = &stack[..engine.expect("the engine is on the stack")];
        let boxed = "poll<alloc::boxed::Box<(dyn core::future::future::Future";
        assert_eq!(between.matches(boxed).count(), 2);
        leadership.release().await;
    });
}

#[test]
fn a_call_that_runs_out_of_time_is_a_failure() {
    run(async |scene| {
        let leadership = scene.lead().await;
        scene.storage.fail_next(Fault::Hang);
        // An attempt has a tenth of the TTL.
        scene.clock.sleep(Duration::from_millis(7_500)).await;
        assert_eq!(scene.failures(), [("write", "no_answer", 1)]);
        leadership.release().await;
    });
}

#[test]
fn every_role_can_be_waited_for_and_has_a_word() {
    run(async |scene| {
        let mut roles = scene.situation.roles();
        let mut words = vec![roles.borrow_and_update().word()];
        let leadership = scene.acquire().await;
        let (pause, ended) = (Duration::from_secs(1), Arc::<str>::from("exited with status 3"));
        let restart = IdleUntil::Restart { number: 2, limit: Some(5) };
        let idle = |until| Idle { until, pause, ended: Arc::clone(&ended) };
        let steps: [&dyn Fn(); 7] = [
            &|| scene.situation.starts(1, leadership.standing().clone()),
            &|| scene.situation.works(),
            &|| scene.situation.idles(idle(restart)),
            &|| scene.situation.works(),
            &|| scene.situation.idles(idle(IdleUntil::Release)),
            &|| scene.situation.stops(WhyStopping::WorkEnded),
            &|| scene.situation.ends("the command has ended"),
        ];
        words.push(roles.borrow_and_update().word());
        for step in steps {
            step();
            roles.changed().await.unwrap();
            words.push(roles.borrow_and_update().word());
        }
        // It works twice.
        words.remove(5);
        assert_eq!(words, Role::WORDS);
        leadership.release().await;
    });
}

#[test]
fn whoever_holds_a_slot_without_work_is_ready_and_does_not_lead() {
    run(async |scene| {
        let situation = Arc::clone(&scene.situation);
        let leadership = scene.lead().await;
        assert!(situation.leads().is_some());
        let until = IdleUntil::Restart { number: 2, limit: Some(5) };
        let ended = "exited with status 3".into();
        situation.idles(Idle { until, pause: Duration::from_secs(4), ended });
        assert!(situation.leads().is_none());
        assert_eq!(situation.readiness(), Readiness::Ready);
        let epoch = leadership.epoch();
        let says = format!(
            "restarting, slot 1, epoch {epoch}: the command exited with status 3; restart 2 of 5 in 4s"
        );
        assert_eq!(situation.role().to_string(), says);
        situation.works();
        assert!(situation.leads().is_some());
        leadership.release().await;
    });
}
