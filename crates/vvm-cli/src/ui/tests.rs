use super::*;
use ielections::{Entry, Holder, Slot, Vacant, testing::in_mock_time};
use serde_json::Value;
use std::{collections::BTreeMap, num::NonZeroU32};
use testing_time::MockClock;
use vvm_clock::Instant;
use vvm_host::operate::{MarkKind, PastLeadership};
use vvm_storage::{Ask, ClusterName, ElectionKey, SlotNumber, mem::MemDatabase};

const SECOND: Duration = Duration::from_secs(1);

/// 2026.
const WALL: Duration = Duration::from_secs(1_795_000_000);

fn view(clock: &MockClock, only: &[String]) -> View {
    let clock = Arc::new(clock.clone()) as Arc<dyn Clock>;
    let names = Names::new("here".into(), only, clock.now(), WALL);
    View { names: RefCell::new(names), asked: Notify::new(), clock }
}

fn key(name: &str) -> ElectionKey {
    ElectionKey { cluster: name.into(), slot: SlotNumber::FIRST }
}

async fn storage(clock: &MockClock, names: &[&str]) -> ElectionsTtlStorage {
    let database = MemDatabase::new(Arc::new(clock.clone()) as Arc<dyn Clock>);
    let storage = ElectionsTtlStorage::new(database.open());
    for name in names {
        storage.settle_slot_count(&ClusterName::from(*name), NonZeroU32::MIN).await.unwrap();
    }
    storage
}

fn record(holder: &str, epoch: u64) -> Entry {
    Entry { holder: Holder::new(holder).unwrap(), ..crate::liveness::tests::record("x", epoch, 1) }
}

async fn lead(storage: &ElectionsTtlStorage, name: &str, entry: &Entry) {
    storage.insert_if_not_exist(&key(name), Vacant::default(), entry).await.unwrap();
}

async fn read_steps(view: &View, storage: &ElectionsTtlStorage, count: usize) {
    view.names.borrow_mut().opened(None, storage.limits().scan_batch);
    for _ in 0..count {
        let step = view.names.borrow_mut().next_step(view.clock.now());
        let answer = perform(storage, &step).await.unwrap();
        view.names.borrow_mut().add(step, answer, view.clock.now());
    }
}

fn json(view: &View, after: u64) -> Value {
    serde_json::from_str(&view.names.borrow().json(after, view.clock.now())).unwrap()
}

fn rows(json: &Value) -> BTreeMap<String, Value> {
    let names = json["names"].as_array().unwrap().iter();
    names.map(|name| (name["name"].as_str().unwrap().to_owned(), name.clone())).collect()
}

#[test]
fn browsers_share_one_request_a_second_and_none_is_sent_without_them() {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    in_mock_time(&clock.clone(), async {
        let named = (0..1000).map(|number| format!("n{number:03}")).collect::<Vec<_>>();
        let storage = storage(&clock, &named.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let view = view(&clock, &[]);
        view.names.borrow_mut().opened(None, storage.limits().scan_batch);
        let sent = RefCell::new(Vec::new());
        let reading = view.keep_reading(async |step| {
            sent.borrow_mut().push((clock.now(), step.requests()));
            perform(&storage, step).await
        });
        let looking = async {
            for _ in 0..20 * 60 * 5 {
                view.to("/names", "after=0");
                view.to("/timeline.svg", "id=3");
                clock.sleep(SECOND / 100).await;
            }
            let looked = sent.borrow().clone();
            clock.sleep(600 * SECOND).await;
            looked
        };
        let looked = tokio::select! {
            biased;
            _ = reading => panic!("it ended"),
            looked = looking => looked,
        };
        for pair in looked.windows(2) {
            assert!(pair[0].0.until(pair[1].0) >= PACE * pair[0].1, "{pair:?}");
        }
        let all = looked.iter().map(|(_, requests)| requests).sum::<u32>();
        assert!((46..=50).contains(&all), "{all}");
        let shown = json(&view, 0);
        assert_eq!((shown["total"].as_u64(), rows(&shown).len()), (Some(1000), 1000));
        assert_eq!(rows(&shown)["n002"]["histories"].as_u64().map(|read| read > 0), Some(true));
        let after = sent.borrow().len() - looked.len();
        assert!(after <= 5, "{after} after the last browser had gone");
    });
}

#[test]
fn names_are_shown_with_leaders_pauses_and_what_has_changed_since() {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    in_mock_time(&clock.clone(), async {
        let storage = storage(&clock, &["led", "paused", "vacant"]).await;
        lead(&storage, "led", &record("web-1", 7)).await;
        let ask = Ask { incarnation: ielections::Incarnation::from_bytes([9; 16]), since_unix_epoch: WALL };
        storage.pause(&"paused".into(), &Holder::new("alice: new schema").unwrap(), ask).await.unwrap();
        let view = view(&clock, &[]);
        assert_eq!(json(&view, 0)["names"], serde_json::json!([]));
        read_steps(&view, &storage, 2).await;
        let shown = json(&view, 0);
        let (number, found) = (shown["number"].as_u64().unwrap(), rows(&shown));
        let led = serde_json::json!([{
            "slot": 1, "state": "led", "holder": "web-1", "epoch": 7, "ttl_ms": 20_000, "written_ms": 0,
        }]);
        assert_eq!((&found["led"]["rows"], &found["led"]["slots"]), (&led, &1.into()));
        assert_eq!(found["paused"]["pause"]["by"], "alice");
        assert_eq!(found["paused"]["pause"]["reason"], "new schema");
        let vacant = serde_json::json!([{"slot": 1, "state": "free", "epoch": null}]);
        assert_eq!((&found["vacant"]["rows"], &found["vacant"]["pause"]), (&vacant, &Value::Null));

        clock.advance(SECOND);
        read_steps(&view, &storage, 4).await;
        assert_eq!(json(&view, number)["names"], serde_json::json!([]), "it has aged, but not changed");
        clock.advance(20 * SECOND);
        read_steps(&view, &storage, 4).await;
        let changed = json(&view, number);
        assert_eq!((changed["all"].as_bool(), rows(&changed).len()), (Some(false), 1), "{changed}");
        assert_eq!(rows(&changed)["led"]["rows"][0]["state"], "stale");

        // A browser of an earlier process gets all.
        assert_eq!(rows(&json(&view, number - 100)).len(), 3);
        assert_eq!(rows(&json(&view, u64::MAX)).len(), 3);
        storage.settle_slot_count(&"another".into(), NonZeroU32::MIN).await.unwrap();
        clock.advance(30 * SECOND);
        read_steps(&view, &storage, 2).await;
        let listed = json(&view, changed["number"].as_u64().unwrap());
        assert_eq!((listed["all"].as_bool(), rows(&listed).len()), (Some(true), 4), "{listed}");
        assert_eq!(rows(&listed)["led"]["id"], found["led"]["id"]);
    });
}

#[test]
fn last_known_state_stays_while_the_storage_is_away() {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    in_mock_time(&clock.clone(), async {
        let storage = storage(&clock, &["led"]).await;
        lead(&storage, "led", &record("web-1", 7)).await;
        let view = view(&clock, &["led".to_owned()]);
        view.names.borrow_mut().opened(None, storage.limits().scan_batch);
        let is_away = RefCell::new(false);
        let reading = view.keep_reading(async |step| {
            let away = *is_away.borrow();
            if away { Err(ReadError::Unavailable("no route".into())) } else { perform(&storage, step).await }
        });
        let looking = async {
            for second in 0..20 {
                view.to("/names", "after=0");
                clock.sleep(SECOND).await;
                *is_away.borrow_mut() = second >= 10;
            }
        };
        tokio::select! {
            biased;
            _ = reading => panic!("it ended"),
            () = looking => {}
        }
        let shown = json(&view, 0);
        assert_eq!(shown["trouble"], "the read failed: no route");
        let silent = shown["now_ms"].as_u64().unwrap() - shown["answered_ms"].as_u64().unwrap();
        assert!((8_000..=11_000).contains(&silent), "{shown}");
        assert_eq!(rows(&shown)["led"]["rows"][0]["holder"], "web-1");
        let step = view.names.borrow_mut().next_step(clock.now());
        let answer = perform(&storage, &step).await.unwrap();
        view.names.borrow_mut().add(step, answer, clock.now());
        assert_eq!(json(&view, 0)["trouble"], Value::Null);
    });
}

#[test]
fn history_that_this_login_may_not_read_is_shown_as_missing_beside_the_rest() {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    in_mock_time(&clock.clone(), async {
        let storage = storage(&clock, &["led"]).await;
        lead(&storage, "led", &record("web-1", 7)).await;
        for denied in [ReadError::Unavailable as fn(_) -> _, ReadError::Fatal] {
            let view = view(&clock, &["led".to_owned()]);
            view.names.borrow_mut().opened(None, storage.limits().scan_batch);
            let reading = view.keep_reading(async |step| match step {
                Step::History(_) => Err(denied("permission denied".into())),
                step => perform(&storage, step).await,
            });
            let looking = async {
                for _ in 0..20 {
                    view.to("/names", "after=0");
                    view.to("/timeline.svg", "id=1");
                    clock.sleep(SECOND).await;
                    assert_eq!(json(&view, 0)["trouble"], Value::Null);
                }
            };
            tokio::select! {
                biased;
                _ = reading => panic!("it ended"),
                () = looking => {}
            }
            let drawn = view.names.borrow_mut().timeline(1, clock.now(), WALL).unwrap();
            assert!(drawn.note.ends_with("permission denied"), "{}", drawn.note);
            assert_eq!(drawn.bars.len(), 1, "what the record shows");
        }
    });
}

#[test]
fn picture_ends_a_dead_leader_at_its_last_renewal_and_merges_old_holders() {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    let mut names = Names::new("here".into(), &["a".to_owned()], clock.now(), WALL);
    names.opened(None, 100);
    let scan = names.next_step(clock.now());
    let entry = record("pod-40", WALL.as_millis() as u64);
    let held = Slot::Held { entry, proven_age: Some(30 * SECOND) };
    names.add(scan, Answer::Scanned(vec![(vec![held], Default::default())]), clock.now());
    assert!(names.timeline(1, clock.now(), WALL).unwrap().note.contains("not read yet"));
    let hours_ago = |hours: u64| (WALL - SECOND * 3600 * hours as u32).as_millis() as u64;
    let past = (0..40).map(|number| PastLeadership {
        holder: format!("pod-{number}"),
        epoch: number + 1,
        started_ms: hours_ago(40 - number),
        ended_ms: Some(hours_ago(39 - number)),
        end: Some("stop requested".into()),
    });
    names.add(Step::History(key("a")), Answer::Read(Ok(past.collect())), clock.now());
    let drawn = names.timeline(1, clock.now(), WALL + 10 * SECOND).unwrap();
    let mut holders = drawn.bars.iter().map(|bar| &*bar.holder).collect::<Vec<_>>();
    holders.dedup();
    assert_eq!((holders.len(), holders[0], holders[8]), (9, "earlier holders", "pod-40"));
    assert_eq!(drawn.span.end - drawn.span.start, Duration::from_hours(24));
    let last = drawn.marks.iter().find(|mark| mark.holder == "pod-40" && mark.kind == MarkKind::Loss);
    assert_eq!(last.unwrap().at, WALL, "written 30 s before, but not before its start");
    assert!(names.timeline(2, clock.now(), WALL).is_none());
}
