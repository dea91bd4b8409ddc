//! Which calls the engine makes of storage, randomness and wall clock, and when.

use crate::{Bench, MOST_IN_FLIGHT, TTL, candidacy, lead, on};
use ielections::{
    Candidacy, Elections, Entropy, Env, Epoch, Incarnation, InsufficientTime, Key, Leadership, Loss,
    ReleaseOutcome, Swap, Terms, Timing, TokioSpawn, Ttl, TtlStorage, Vacant,
    env::panic_message,
    testing::{
        MockTtlStorage,
        elections_suite::Process,
        mock::{Fault, Verb},
    },
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, WallClock};
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_storage::{
    ElectionKey, ElectionsTtlStorage, SlotNumber, Step, StepOutcome, testing::MockSysVvmStorage,
};

const WALL: Duration = Duration::from_millis(1_700_000_000_000);
const OURS: Incarnation = Incarnation::from_bytes([9; 16]);

#[derive(Debug, Default)]
struct Asked {
    wall: AtomicUsize,
    incarnations: AtomicUsize,
}

impl WallClock for Asked {
    fn since_unix_epoch(&self) -> Duration {
        self.wall.fetch_add(1, Ordering::Relaxed);
        WALL
    }
}

impl Entropy for Asked {
    fn fill(&self, bytes: &mut [u8]) {
        self.incarnations.fetch_add(1, Ordering::Relaxed);
        bytes.copy_from_slice(OURS.as_bytes());
    }

    fn next_u64(&self) -> u64 {
        0
    }
}

/// No call is repeated. Wall time is used only for the epoch, and randomness only for incarnations and jitter.
#[tokio::test]
async fn uncontended_leadership_costs_one_read_one_claim_and_one_delete() {
    let (bench, asked) = (Bench::new(), Arc::new(Asked::default()));
    let env = Env {
        clock: Arc::new(bench.clock.clone()),
        wall: Arc::clone(&asked) as _,
        deadman: Deadman::with_trigger(RecordingTrigger::on(Arc::new(bench.clock.clone()))),
        entropy: Arc::clone(&asked) as _,
        spawn: Arc::new(TokioSpawn::on(tokio::runtime::Handle::current())),
    };
    let elections = Elections::new(Arc::clone(&bench.faulty) as _, env);
    let (_, leadership) = elections.acquire(candidacy(7)).await.unwrap();
    let epoch = Epoch::new(WALL.as_millis() as u64).unwrap();
    assert_eq!((leadership.epoch(), leadership.incarnation()), (epoch, OURS));
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    elections.cleanup().await;
    let calls: Vec<Verb> = bench.faulty.log().iter().map(|call| call.verb).collect();
    assert_eq!(calls, [Verb::Scan, Verb::InsertIfNotExist, Verb::CompareAndDelete]);
    assert_eq!(asked.wall.load(Ordering::Relaxed), 1);
    assert_eq!(asked.incarnations.load(Ordering::Relaxed), 1);
}

/// The record is renewed while the process stands still, during its first read. Shows I5.
#[test]
fn observation_counts_from_the_answer_of_a_call_during_which_the_process_stood_still() {
    const LONGER_THAN_A_TTL: Duration = TTL.checked_mul(5).unwrap().checked_div(4).unwrap();
    let bench = Bench::new();
    on(&bench.clock, async {
        let entry = ielections::testing::entry(7, 3, 1);
        bench.faulty.insert_if_not_exist(&0, Vacant::default(), &entry).await.unwrap();
        let (clock, stood_still) = (bench.clock.clone(), AtomicBool::new(false));
        bench.faulty.watch(move |verb| {
            if verb == Verb::Scan && !stood_still.swap(true, Ordering::Relaxed) {
                clock.advance(LONGER_THAN_A_TTL);
            }
        });
        let began = bench.clock.now();
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let waited = bench.clock.now().since(began);
        assert!(waited >= LONGER_THAN_A_TTL + TTL, "taken over after {waited:?}");
        leadership.release().await;
    });
}

#[test]
fn standby_reads_less_often_while_hints_follow_releases() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leader = lead(&process, 0).await;
        let leader_releases = async {
            let mut reads = [0; 2];
            for hints in [false, true] {
                bench.faulty.say_hints_follow(hints);
                bench.clock.sleep(TTL).await;
                let before = bench.faulty.count(Verb::Scan);
                bench.clock.sleep(TTL * 10).await;
                reads[usize::from(hints)] = bench.faulty.count(Verb::Scan) - before;
            }
            let [without, with] = reads;
            assert!(without >= 200 && with <= 55, "{without} reads without hints, {with} with");
            assert_eq!(leader.release().await, ReleaseOutcome::Released);
            process.elections.look_now();
            bench.clock.now()
        };
        let (hinted_at, led) = tokio::join!(leader_releases, process.elections.acquire(candidacy(0)));
        assert!(bench.clock.now().since(hinted_at) <= Terms::HINT_GAP);
        led.unwrap().1.release().await;
    });
}

/// Neither storage calls nor commands pile up. Shows I11.
#[test]
fn flood_of_hints_costs_fifty_reads_a_second() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let _leader = lead(&process, 0).await;
        let flood = async {
            bench.clock.sleep(Duration::from_secs(1)).await;
            let before = bench.faulty.count(Verb::Scan);
            for _ in 0..2000 {
                for _ in 0..10 {
                    process.elections.look_now();
                }
                bench.clock.sleep(Duration::from_millis(1)).await;
            }
            bench.faulty.count(Verb::Scan) - before
        };
        let looks = tokio::select! {
            biased;
            looks = flood => looks,
            _ = process.elections.acquire(candidacy(0)) => panic!("two leaders"),
        };
        assert!((90..=110).contains(&looks), "{looks} looks in two seconds");
    });
}

const TIMING: Timing = Timing::new(Ttl::DEFAULT);

#[test]
fn loss_is_at_its_instant_while_every_call_hangs() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let mut leaderships = Vec::new();
        for slot in 0..=MOST_IN_FLIGHT {
            leaderships.push(lead(&process, slot as u32).await);
        }
        let sent_at = |one: &Leadership| one.standing().kill_at().before(TTL * 8 / 10);
        let sent_at: Vec<_> = leaderships.iter().map(sent_at).collect();
        for verb in Verb::RECORDS {
            bench.faulty.fail_always(verb, Fault::Hang);
        }
        for (leadership, &sent_at) in leaderships.iter().zip(&sent_at) {
            let loss = leadership.lost().await;
            assert!(matches!(loss, Loss::StorageUnreachable { .. }), "{loss:?}");
            assert_eq!(bench.clock.now(), TIMING.loss_at(sent_at));
            assert_eq!(leadership.standing().kill_at(), TIMING.kill_at(sent_at));
        }
        assert!(process.trigger.fired().is_empty());
        bench.clock.sleep_until(TIMING.kill_at(sent_at[0])).await;
        assert!(process.trigger.check(), "nothing would have ended this process");
    });
}

/// The engine has not run, so no loss is set: the standing compares the time itself.
#[test]
fn ensure_fails_past_the_deadline() {
    let bench = Bench::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let kill_at = leadership.standing().kill_at();
        bench.clock.advance_to(kill_at.before(Duration::from_nanos(1)));
        assert_eq!(leadership.ensure(Duration::ZERO), Ok(()));
        bench.clock.advance_to(kill_at);
        assert_eq!(leadership.standing().loss(), None, "the engine has run");
        let ensured = leadership.ensure(Duration::ZERO);
        assert!(matches!(ensured, Err(InsufficientTime::TooShort { .. })), "{ensured:?}");
        assert_eq!(leadership.lost().await, Loss::Suspended);
        assert_eq!(bench.faulty.count(Verb::CompareAndSwap), 0, "a call after the loss");
        leadership.release().await;
    });
}

fn failure_in_a_led_ttl<K: Key>(storage: impl TtlStorage<K>, slot: K) -> Option<String> {
    let clock = MockClock::new();
    let led = AssertUnwindSafe(async {
        let process = Process::start(Arc::new(storage), Arc::new(clock.clone()));
        let candidacy = Candidacy { slots: vec![slot], terms: candidacy(0).terms };
        let (_, leadership) = process.elections.acquire(candidacy).await.unwrap();
        clock.sleep(TTL).await;
        let _ = leadership.release().await;
        process.elections.cleanup().await;
    });
    let failed = catch_unwind(|| on(&clock, led)).err()?;
    Some(panic_message(&*failed).to_owned())
}

#[test]
fn mock_that_is_called_otherwise_than_expected_fails_the_test() {
    let renewals = |expect: fn(&mut MockTtlStorage<u32>)| {
        let mut storage = MockTtlStorage::vacant();
        expect(&mut storage);
        failure_in_a_led_ttl(storage, 7)
    };
    let too_few = renewals(|storage| {
        storage.expect_compare_and_swap().times(100).returning(|_, _, _| Ok(Swap::Swapped));
    });
    assert!(too_few.unwrap().contains("fewer than expected 100"));
    let too_many = renewals(|storage| {
        storage.expect_compare_and_swap().times(0).returning(|_, _, _| Ok(Swap::Swapped));
    });
    assert!(too_many.unwrap().contains("should not have been called"));
    assert!(renewals(|_| {}).unwrap().contains("MockTtlStorage::compare_and_swap"));
    let asserts = renewals(|storage| {
        storage.expect_compare_and_swap().returning(|_, _, _| panic!("it renews"));
    });
    assert_eq!(asserts.unwrap(), "in a storage mock: it renews");
    let as_expected = renewals(|storage| {
        storage.expect_compare_and_swap().times(4..).returning(|_, _, _| Ok(Swap::Swapped));
    });
    assert_eq!(as_expected, None);
}

#[test]
fn mock_below_elections_that_is_called_otherwise_than_expected_fails_the_test() {
    let steps = |expect: fn(&mut MockSysVvmStorage)| {
        let mut driver = MockSysVvmStorage::vacant();
        expect(&mut driver);
        let slot = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::FIRST };
        failure_in_a_led_ttl(ElectionsTtlStorage::new(Arc::new(driver)), slot)
    };
    let too_few = steps(|driver| {
        driver.expect_commit().times(100).returning(|_, _| Ok(StepOutcome::Applied));
    });
    assert!(too_few.unwrap().contains("fewer than expected 100"));
    let asserts = steps(|driver| {
        driver.expect_commit().returning(|_, step| {
            assert!(!matches!(step, Step::Renew { .. }), "it renews");
            Ok(StepOutcome::Applied)
        });
    });
    assert_eq!(asserts.unwrap(), "in a storage mock: it renews");
}

#[test]
#[should_panic(expected = "no test for a real storage, such as SQLite")]
fn test_that_waits_for_a_thread_is_told_so_after_an_hour() {
    on(&MockClock::new(), std::future::pending());
}
