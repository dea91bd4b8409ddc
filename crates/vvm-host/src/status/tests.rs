use super::*;
use crate::{
    host_storage::HostStorage,
    local_wakeups::LocalWakeups,
    metrics::{HOST, Samples},
    timeline::BarKind,
};
use async_trait::async_trait;
use ielections::{
    Candidacy, Document, DocumentId, Elections, Entry, Epoch, Holder, Incarnation, Leadership, ReadError,
    Terms, Ttl, TtlStorage as _, Vacant, Version,
    testing::{env, in_mock_time},
};
use std::num::NonZeroU32;
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_storage::{
    ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage,
    mem::MemDatabase,
    testing::{Fault, FaultyStorage, Layer},
};

const TTL: Ttl = Ttl::DEFAULT;

pub(crate) fn status(name: &str, holder: &str, clock: &Arc<dyn Clock>) -> Arc<HostStatus> {
    let holder = Holder::new(holder).unwrap();
    let candidate = Candidate { name: name.into(), holder, slots: NonZeroU32::MIN, ttl: TTL };
    Arc::new(HostStatus::new(candidate, Arc::clone(clock)))
}

impl HostStatus {
    pub(crate) fn trouble_logged_at(&self) -> Option<Instant> {
        self.storage.lock().logged_at
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.trouble_logged_at().is_some()
    }
}

pub(crate) fn host_storage(storage: &Arc<FaultyStorage>, status: &Arc<HostStatus>) -> HostStorage {
    let storage = Arc::new(ElectionsTtlStorage::new(Arc::clone(storage).into_storage()));
    HostStorage::new(storage, LocalWakeups::disabled(), Arc::clone(status), CancellationToken::new())
}

pub(crate) async fn in_steps<T>(clock: &MockClock, step: Duration, task: impl Future<Output = T>) -> T {
    let mut task = Box::pin(task);
    loop {
        tokio::select! {
            biased;
            done = &mut task => return done,
            () = tokio::task::yield_now() => clock.advance(step),
        }
    }
}

#[derive(Debug)]
pub(crate) struct PanicsOnce {
    storage: Arc<dyn SysVvmStorage>,
    next: Mutex<Option<&'static str>>,
}

impl PanicsOnce {
    pub(crate) fn over(storage: Arc<dyn SysVvmStorage>) -> Self {
        Self { storage, next: Mutex::default() }
    }

    pub(crate) fn at_next(&self, call: &'static str) {
        *self.next.lock() = Some(call);
    }

    pub(crate) fn will_panic(&self) -> bool {
        self.next.lock().is_some()
    }

    fn called(&self, call: &str) {
        let panics = self.next.lock().take_if(|next| *next == call);
        assert_eq!(panics, None, "no thread for the look-up of a name");
    }
}

#[async_trait]
impl Layer for PanicsOnce {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.called("read");
        self.storage.read(at).await
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.called("peek_some");
        self.storage.peek_some(at, seen).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.called("document");
        self.storage.document(at, id).await
    }
}

pub(crate) struct Scene {
    pub(crate) clock: MockClock,
    pub(crate) status: Arc<HostStatus>,
    pub(crate) faulty: Arc<FaultyStorage>,
    pub(crate) other: ElectionsTtlStorage,
}

fn run<Test: Future<Output = ()>>(test: impl FnOnce(Scene) -> Test) {
    let scene = Scene::of("here");
    in_mock_time(&scene.clock.clone(), test(scene));
}

pub(crate) fn key() -> ElectionKey {
    ElectionKey { cluster: "payroll".into(), slot: SlotNumber::FIRST }
}

pub(crate) fn record(epoch: u64) -> Entry {
    let incarnation = Incarnation::from_bytes([epoch as u8; 16]);
    let (holder, version) = (Holder::new("there").unwrap(), Version { incarnation, write: 1 });
    Entry { holder, version, ttl: TTL, epoch: Epoch::new(epoch).unwrap() }
}

impl Scene {
    pub(crate) fn of(holder: &str) -> Self {
        let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let database = MemDatabase::new(Arc::clone(&time));
        let other = ElectionsTtlStorage::new(database.open());
        Self {
            clock,
            status: status("payroll", holder, &time),
            faulty: FaultyStorage::over(database.open()),
            other,
        }
    }

    pub(crate) async fn acquire(&self) -> Leadership {
        let storage = host_storage(&self.faulty, &self.status);
        self.status.campaigns();
        let terms = Terms::new(self.status.candidate.holder.clone(), TTL);
        let elections = Elections::new(Arc::new(storage), env(&self.clock));
        let (_, leadership) = elections.acquire(Candidacy { slots: vec![key()], terms }).await.unwrap();
        leadership
    }

    async fn lead(&self) -> Leadership {
        let leadership = self.acquire().await;
        self.status.starts(1, leadership.standing().clone());
        self.status.works();
        leadership
    }

    fn samples(&self, metric: &str) -> usize {
        let metric = HOST.iter().find(|known| known.name == metric).unwrap();
        let Samples::Gauge(read) = metric.samples else { panic!() };
        let mut count = 0;
        read(&self.status, &mut |_, _| count += 1);
        count
    }

    fn losses(&self) -> Vec<(&'static str, u64)> {
        self.status.telemetry.losses().filter(|(_, count)| *count > 0).collect()
    }

    fn failures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let failures = self.status.telemetry.failures().filter(|(.., count)| *count > 0);
        failures.map(|(call, failure, count)| (call.word(), failure, count)).collect()
    }
}

fn reason(readiness: Result<(), String>) -> String {
    readiness.map_or_else(|reason| reason, |()| "ready".into())
}

#[test]
fn standby_that_reaches_its_storage_is_ready_and_names_the_leader() {
    run(async |scene| {
        let status = Arc::clone(&scene.status);
        assert_eq!(reason(status.readiness()), "opening the storage");
        status.storage_not_opened(&"the disk is full");
        assert_eq!(reason(status.readiness()), "opening the storage: the disk is full");

        scene.other.insert_if_not_exist(&key(), Vacant::default(), &record(3)).await.unwrap();
        let look = async {
            scene.clock.sleep(TTL.get() / 2).await;
            assert_eq!(reason(status.readiness()), "ready");
            assert!(status.leads().is_none());
            let others = status.others();
            assert_eq!(others.len(), 1);
            assert_eq!((others[0].holder.as_str(), others[0].epoch), ("there", record(3).epoch));
        };
        let (leadership, ()) = tokio::join!(scene.lead(), look);
        assert_eq!(status.telemetry.take_overs.get(), 1);
        assert_eq!(status.others(), []);
        leadership.release().await;
    });
}

#[test]
fn record_that_has_stood_for_its_ttl_is_called_expired() {
    run(async |scene| {
        let look = |epoch, proven_age| {
            scene.status.saw(&key(), &Slot::Held { entry: record(epoch), proven_age });
            scene.status.leader_seen().unwrap()
        };
        assert!(look(3, None).starts_with("slot 1 is led by there, epoch 3"));
        scene.clock.sleep(TTL.get()).await;
        assert!(look(3, None).starts_with("slot 1 has an expired record of there, epoch 3"));
        assert!(look(4, None).starts_with("slot 1 is led by there, epoch 4"));
        assert!(look(5, Some(TTL.get())).starts_with("slot 1 has an expired record of there, epoch 5"));
    });
}

#[test]
fn picture_has_each_leader_for_as_long_as_it_renewed_and_the_deadline_of_this_process() {
    use BarKind::{Dead, Leads, Ttl};
    run(async |scene| {
        scene.status.campaigns();
        for renewed in [0, 1, 1] {
            scene.clock.sleep(Duration::from_secs(5)).await;
            let version = Version { write: renewed, ..record(3).version };
            let entry = Entry { version, ..record(3) };
            scene.status.saw(&key(), &Slot::Held { entry, proven_age: None });
        }
        let first = Vacant::default();
        scene.other.insert_if_not_exist(&key(), first, &record(3)).await.unwrap();
        scene.other.compare_and_delete(&key(), record(3).version.incarnation, record(3).epoch).await.unwrap();
        let leadership = scene.lead().await;
        scene.clock.sleep(Duration::from_secs(3)).await;
        scene.status.stops(WhyStopping::Asked);
        let shown = scene.status.timeline();
        let seconds = |from: Duration, until: Duration| (until - from).as_secs();
        let began = shown.span.start;
        let bars = shown.bars.iter().map(|bar| {
            (&*bar.holder, bar.kind, seconds(began, bar.span.start), seconds(began, bar.span.end))
        });
        let epoch = leadership.standing().epoch().get();
        assert_eq!(
            bars.collect::<Vec<_>>(),
            [
                ("there", Leads(3), 5, 10),
                ("here", Leads(epoch), 15, 18),
                ("here", Ttl, 15, 35),
                ("here", Dead, 31, 35)
            ]
        );
        let marks = shown.marks.iter().map(|mark| (&*mark.holder, &*mark.text, seconds(began, mark.at)));
        assert_eq!(marks.collect::<Vec<_>>(), [("here", "leads", 15), ("here", "stops", 18)]);
        scene.status.campaigns();
        scene.clock.sleep(Duration::from_secs(9)).await;
        let shown = scene.status.timeline();
        let last = shown.bars.last().unwrap();
        assert_eq!((&*last.holder, seconds(last.span.start, last.span.end)), ("here", 3));
        leadership.release().await;
    });
}

#[test]
fn picture_of_many_slots_keeps_those_that_were_seen_first_and_its_own() {
    run(async |scene| {
        for _look in 0..2 {
            for slot in SlotNumber::all(NonZeroU32::new(80).unwrap()).skip(1) {
                let found = Slot::Held { entry: record(3), proven_age: None };
                scene.status.saw(&ElectionKey { slot, ..key() }, &found);
            }
            scene.clock.sleep(Duration::from_secs(5)).await;
        }
        let leadership = scene.lead().await;
        let shown = scene.status.timeline();
        let leads = shown.bars.iter().filter(|bar| matches!(bar.kind, BarKind::Leads(_)));
        let since = |slot| leads.clone().find(|bar| bar.slot == slot).map(|bar| bar.span.start);
        assert_eq!(since(60), Some(shown.span.start));
        assert!(since(1).is_some());
        leadership.release().await;
    });
}

#[test]
fn standby_whose_storage_is_silent_for_a_ttl_is_not_ready() {
    run(async |scene| {
        scene.status.campaigns();
        scene.status.storage_answered(Call::Read);
        scene.clock.sleep(TTL.get()).await;
        assert_eq!(reason(scene.status.readiness()), "ready");
        scene.clock.sleep(Duration::from_secs(1)).await;
        scene.status.storage_failed(Call::Read, "unavailable", &"no route");
        let reason = reason(scene.status.readiness());
        assert_eq!(reason, "the storage has been of no use for 21 s: no route");
        scene.status.storage_answered(Call::Read);
        assert_eq!(scene.status.readiness(), Ok(()));
        assert_eq!(scene.status.storage_problem(), None);
    });
}

#[test]
fn candidate_whose_last_claim_failed_is_not_ready_until_the_storage_takes_a_write() {
    run(async |scene| {
        let status = &scene.status;
        let see = async || {
            let found = scene.other.get(&key()).await.unwrap();
            status.storage_answered(Call::Read);
            status.saw(&key(), &found);
        };
        status.campaigns();
        status.storage_failed(Call::Write, "not_applied", &"the disk is full");
        see().await;
        assert_eq!(reason(status.readiness()), "the last claim or renewal failed: the disk is full");
        status.storage_answered(Call::Write);
        assert_eq!(status.readiness(), Ok(()));

        scene.other.insert_if_not_exist(&key(), Vacant::default(), &record(3)).await.unwrap();
        status.storage_failed(Call::Write, "unknown", &"no quorum");
        see().await;
        see().await;
        assert_eq!(reason(status.readiness()), "the last claim or renewal failed: no quorum");
        let mut renewed = record(3);
        renewed.version.write += 1;
        scene.other.compare_and_swap(&key(), &record(3), &renewed).await.unwrap();
        see().await;
        assert_eq!(status.readiness(), Ok(()));
    });
}

#[test]
fn leader_whose_last_renewal_failed_is_not_ready_until_one_is_confirmed() {
    run(async |scene| {
        let leadership = scene.lead().await;
        scene.faulty.fail_next(Fault::Refused);
        scene.clock.sleep(Duration::from_millis(5_100)).await;
        let is_refused = "the last claim or renewal failed: not applied: the disk is full";
        assert_eq!(reason(scene.status.readiness()), is_refused);
        assert!(scene.status.leads().is_some());
        scene.clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(scene.status.readiness(), Ok(()));
        let since = scene.status.since_renewal(leadership.standing());
        assert!(since < Duration::from_secs(2), "{since:?}");
        leadership.release().await;
    });
}

#[test]
fn leader_leads_while_it_works_and_has_time_left() {
    run(async |scene| {
        let leadership = scene.acquire().await;
        scene.status.starts(1, leadership.standing().clone());
        assert!(scene.status.leads().is_none(), "its work has not started");
        scene.status.works();
        let (leading, margin) = scene.status.leads().unwrap();
        assert_eq!((leading.slot, margin), (1, TTL.get() * 4 / 5));

        scene.clock.sleep(Duration::from_secs(21)).await;
        let renewals = scene.status.telemetry.renewals.read();
        assert_eq!((renewals.count, scene.failures()), (4, vec![]));
        assert!(scene.status.leads().unwrap().1 > TTL.get() / 2);
        let since = scene.status.since_renewal(leadership.standing());
        assert_eq!(since + scene.status.leads().unwrap().1, TTL.get() * 4 / 5);

        scene.status.stops_by(leadership.standing(), WhyStopping::Asked);
        assert!(scene.status.leads().is_none(), "its work stops");
        assert!(matches!(scene.status.role(), Role::Stopping { why: WhyStopping::Asked, .. }));
        assert_eq!(scene.samples("vvm_epoch"), 1);
        leadership.release().await;
        assert_eq!(scene.samples("vvm_epoch"), 0, "the role is the same until the next campaign");
        assert_eq!((scene.status.telemetry.leaderships.get(), scene.losses()), (1, vec![]));
    });
}

#[test]
fn loss_is_counted_once_and_its_reason_stays() {
    run(async |scene| {
        let leadership = scene.lead().await;
        let (epoch, incarnation) = (leadership.epoch(), leadership.incarnation());
        scene.other.compare_and_delete(&key(), incarnation, epoch).await.unwrap();
        let vacant = Vacant { last_epoch: Some(epoch) };
        scene.other.insert_if_not_exist(&key(), vacant, &record(epoch.get() + 1)).await.unwrap();
        leadership.lost().await;
        assert!(scene.status.leads().is_none(), "a lost leadership has no time left in any role");
        for why in [WhyStopping::Asked, WhyStopping::WorkEnded] {
            scene.status.stops_by(leadership.standing(), why);
        }
        assert_eq!(scene.losses(), [("stolen", 1)]);
        scene.status.work_ended("the command was ended by SIGTERM");
        let how = scene.status.how_work_ended();
        let parts = ["leadership lost: taken over by ", "; the command was ended by SIGTERM"];
        assert!(how.starts_with(parts[0]) && how.ends_with(parts[1]), "{how}");
        let shown = scene.status.snapshot();
        assert_eq!(shown["leadership"]["loss"], "stolen");
        let changes = shown["changes"].as_array().unwrap();
        assert!(changes[0]["says"].as_str().unwrap().starts_with("stopping, slot 1"), "{shown}");
        assert!(changes.len() > 1 && changes.len() <= CHANGES, "{shown}");
        assert_eq!(
            (&shown["leadership"]["margin_ms"], &shown["others"][0]["holder"]),
            (&0.into(), &"there".into())
        );
        leadership.release().await;
    });
}

#[test]
fn unanswered_call_is_a_failure() {
    run(async |scene| {
        let leadership = scene.lead().await;
        scene.faulty.fail_next(Fault::Hang);
        scene.clock.sleep(Duration::from_millis(7_500)).await;
        assert_eq!(scene.failures(), [("write", "no_answer", 1)]);
        // A renewal without an answer is read back.
        let found = scene.other.get(&key()).await.unwrap();
        scene.status.saw(&key(), &found);
        assert!(scene.status.others().is_empty(), "its own record is no other's");
        leadership.release().await;
    });
}

#[test]
fn every_role_is_observed_and_has_a_word() {
    run(async |scene| {
        let mut roles = scene.status.roles();
        let mut words = vec![roles.borrow_and_update().word()];
        scene.status.is_unready();
        words.push(roles.borrow_and_update().word());
        let leadership = scene.acquire().await;
        let (pause, ended) = (Duration::from_secs(1), "exited with status 3".into());
        let idle = PendingRestart { number: 2, limit: Some(5), pause, ended };
        let steps: [&dyn Fn(); 5] = [
            &|| scene.status.starts(1, leadership.standing().clone()),
            &|| scene.status.works(),
            &|| scene.status.idles(idle.clone()),
            &|| scene.status.stops(WhyStopping::WorkEnded),
            &|| scene.status.ends("the command has ended"),
        ];
        words.push(roles.borrow_and_update().word());
        for step in steps {
            step();
            roles.changed().await.unwrap();
            words.push(roles.borrow_and_update().word());
        }
        assert_eq!(words, Role::WORDS);
        leadership.release().await;
    });
}

#[test]
fn holder_without_work_is_ready_and_does_not_lead() {
    run(async |scene| {
        let status = Arc::clone(&scene.status);
        let leadership = scene.lead().await;
        assert!(status.leads().is_some());
        let (pause, ended) = (Duration::from_secs(4), "exited with status 3".into());
        status.idles(PendingRestart { number: 2, limit: Some(5), pause, ended });
        assert!(status.leads().is_none());
        assert_eq!(status.readiness(), Ok(()));
        let epoch = leadership.epoch();
        let says = format!(
            "restarting, slot 1, epoch {epoch}: the command exited with status 3; restart 2 of 5 in 4s"
        );
        assert_eq!(status.role().to_string(), says);
        assert_eq!(status.telemetry.restarts.get(), 0);
        status.works();
        assert!(status.leads().is_some());
        assert_eq!(status.telemetry.restarts.get(), 1);
        leadership.release().await;
    });
}
