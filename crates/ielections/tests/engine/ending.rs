use crate::{Bench, TTL, candidacy, lead, on};
use futures_util::FutureExt;
use ielections::{
    Elections, Env, Loss, OsEntropy, ReleaseOutcome, Spawn, Terms, Timing, Ttl,
    env::Task,
    testing::mock::{Fault, Verb},
};
use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};
use tracing::{Event, Level, Metadata, Subscriber, span};
use vvm_clock::Clock;

fn assert_nothing_is_left(bench: &Bench) {
    assert_eq!((Arc::strong_count(&bench.faulty), bench.faulty.waiting()), (1, 0));
}

#[test]
fn nothing_is_left_when_everything_is_dropped() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        lead(&process, 0).await.release().await;
        let kept = lead(&process, 1).await;
        let waiting = Box::pin(process.elections.acquire(candidacy(1)));
        assert!(waiting.now_or_never().is_none());
        let (deadman, trigger, tasks) =
            (process.deadman.clone(), Arc::clone(&process.trigger), process.tasks());
        assert_eq!(tasks, 1);
        drop(process);
        bench.clock.sleep(TTL * 2).await;
        assert_eq!(kept.standing().loss(), None, "no longer renewed");
        let renewals = bench.faulty.count(Verb::CompareAndSwap);
        assert!(renewals >= 7, "{renewals} renewals in two TTLs");
        assert_eq!(kept.release().await, ReleaseOutcome::Released);
        bench.until(|| Arc::strong_count(&bench.faulty) == 1).await;
        assert_nothing_is_left(&bench);
        assert_eq!((deadman.armed(), trigger.earliest()), (0, None));
    });
    assert_eq!(bench.clock.sleepers(), 0, "a timer outlived its engine");
}

/// A withdrawn claim that hangs, and the record that it may have written, are settled first.
#[test]
fn cleanup_ends_in_bounded_time_although_the_storage_hangs() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        for verb in [Verb::InsertIfNotExist, Verb::CompareAndDelete] {
            bench.faulty.fail_always(verb, Fault::Hang);
        }
        let mut waiting = Box::pin(process.elections.acquire(candidacy(0)));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("led on a storage that hangs"),
            () = bench.until(|| bench.faulty.count(Verb::InsertIfNotExist) > 0) => {}
        }
        let began = bench.clock.now();
        process.elections.cleanup().await;
        // The claim in flight, then three deletes: 0.1 TTL each, and twice 0.05 TTL between.
        assert!(bench.clock.now() <= began.after(TTL / 2));
        assert_eq!(process.tasks(), 0);
        drop(waiting);
        drop(process);
        assert_nothing_is_left(&bench);
    });
}

#[derive(Debug, Default)]
struct ByHand(Mutex<Vec<Held>>);

struct Held(Task);

impl std::fmt::Debug for Held {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a task")
    }
}

impl Spawn for ByHand {
    fn spawn(&self, _name: &'static str, task: Task) {
        self.0.lock().unwrap().push(Held(task));
    }
}

#[test]
fn cleanup_is_done_when_the_engine_is_dropped() {
    let bench = Bench::new();
    let spawn = Arc::new(ByHand::default());
    let trigger = vvm_deadman::recording::RecordingTrigger::on(Arc::new(bench.clock.clone()));
    let env = Env {
        clock: Arc::new(bench.clock.clone()),
        wall: Arc::new(testing_time::MockWallClock::new()),
        deadman: vvm_deadman::Deadman::with_trigger(trigger),
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::clone(&spawn) as _,
    };
    let elections = Elections::new(Arc::clone(&bench.faulty) as _, env);
    let mut cleanup = pin!(elections.cleanup());
    assert!(cleanup.as_mut().now_or_never().is_none());
    let Held(mut engine) = spawn.0.lock().unwrap().pop().unwrap();
    assert!(engine.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert!(cleanup.as_mut().now_or_never().is_none(), "the storage is still held");
    drop(engine);
    assert!(cleanup.now_or_never().is_some());
    assert_nothing_is_left(&bench);
}

/// It counts as unknown (I7): the lease is renewed by the next attempt, or lost in time.
#[test]
fn panic_in_the_driver_counts_as_a_call_without_an_answer() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let bugs = AtomicUsize::new(2);
        bench.faulty.watch(move |_| {
            let bug = bugs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            assert!(bug.is_err(), "a driver's bug, on purpose");
        });
        bench.clock.sleep(TTL).await;
        assert_eq!(leadership.standing().loss(), None);

        bench.faulty.watch(|_| panic!("a driver's bug, on purpose"));
        let Loss::StorageUnreachable { last_failure: Some(said) } = leadership.lost().await else { panic!() };
        assert_eq!(&*said, "the storage driver panicked: a driver's bug, on purpose");
        assert_eq!(leadership.release().await, ReleaseOutcome::LeftToExpire);
        assert_eq!(process.deadman.armed(), 0);
        process.elections.cleanup().await;
        assert_eq!(process.tasks(), 0);
    });
}

struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("a subscriber's bug, on purpose");
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The subscriber may also block, as on a pipe that is full. Shows I4.
#[test]
fn loss_is_in_force_before_it_is_logged() {
    let bench = Bench::new();
    let test = async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        bench.faulty.wipe(&0).await.unwrap();
        assert_eq!(leadership.lost().await, Loss::Vanished);
        let tightened = bench.clock.now().after(Timing::new(Ttl::DEFAULT).stopping());
        assert_eq!(process.trigger.earliest().map(|(at, _)| at), Some(tightened));
    };
    tracing::subscriber::with_default(Panics, || on(&bench.clock, test));
}

/// No renewal follows. Each leader gets a loss, and the deadline stays armed, also after a hand-back (I4).
#[test]
fn end_of_the_runtime_loses_all_leaderships_and_disarms_nothing() {
    let bench = Bench::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (process, leadership) = runtime.block_on(async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        (process, leadership)
    });
    assert_eq!(leadership.standing().loss(), None);
    drop(runtime);
    assert_eq!(leadership.standing().loss(), Some(&Loss::EngineEnded));
    assert_eq!(leadership.remaining(), Duration::ZERO);
    let kill_at = leadership.standing().kill_at();
    assert_eq!(leadership.release().now_or_never(), Some(ReleaseOutcome::StillArmed));
    assert_eq!((process.deadman.armed(), process.trigger.earliest().unwrap().0), (1, kill_at));
    assert_eq!(bench.clock.sleepers(), 0);
}

/// After an outage that ended its leadership, a sole candidate does not wait for its own record to expire.
#[test]
fn record_whose_release_failed_is_deleted_before_the_next_claim() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let first = lead(&process, 0).await;
        let (left, verbs) =
            ((first.incarnation(), first.epoch()), [Verb::CompareAndSwap, Verb::CompareAndDelete]);
        verbs.into_iter().for_each(|verb| bench.faulty.fail_always(verb, Fault::NotApplied));
        first.lost().await;
        assert_eq!(first.release().await, ReleaseOutcome::LeftToExpire);
        let mut again = candidacy(0);
        again.terms.left_behind.push(left);
        let mut acquired = pin!(process.elections.acquire(again));
        tokio::select! {
            biased;
            _ = &mut acquired => panic!("claimed beside its own record"),
            () = bench.until(|| bench.faulty.count(Verb::CompareAndDelete) > 5) => {}
        }
        assert_eq!(bench.faulty.count(Verb::TakeOver), 0);
        bench.faulty.heal();
        let began = bench.clock.now();
        let (_, second) = acquired.await.unwrap();
        assert!(bench.clock.now() <= began.after(Terms::POLL), "within one look");
        assert!(second.epoch() > left.1);
        second.release().await;
    });
}
