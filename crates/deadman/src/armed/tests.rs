//! The set compared with a simple model: a list of deadlines and its minimum.

use super::*;
use crate::recording::RecordingTrigger;
use proptest::{collection::vec, prelude::*};
use std::time::Duration;
use testing_time::MockClock;

struct Bench {
    clock: MockClock,
    trigger: Arc<RecordingTrigger>,
    deadman: Deadman,
}

impl Bench {
    fn new() -> Self {
        let clock = MockClock::new();
        let trigger = RecordingTrigger::on(Arc::new(clock.clone()));
        let deadman = Deadman::with_trigger(trigger.clone());
        Self { clock, trigger, deadman }
    }

    fn arm(&self, millis: u64, epoch: u64) -> ArmedDeadline {
        self.deadman.arm(subject(epoch), at(millis)).unwrap()
    }

    fn triggered(&self) -> Option<(Instant, u64)> {
        self.trigger.earliest().map(|(at, subject)| (at, subject.epoch))
    }
}

fn subject(epoch: u64) -> Subject {
    Subject { key: "payroll".into(), holder: "here".into(), epoch }
}

fn at(millis: u64) -> Instant {
    Instant::ORIGIN.after(Duration::from_millis(millis))
}

#[test]
fn panicking_batch_disarms_nothing() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    let batch = [at(20), at(30)].into_iter().map(|new| {
        assert_ne!(new, at(30), "a batch that panics half-way");
        (&armed, new)
    });
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.deadman.confirm(batch)));
    assert!(outcome.is_err());
    assert_eq!(bench.triggered(), Some((at(10), 1)));
    bench.deadman.disarm(armed);
    assert_eq!(bench.triggered(), None);
}

#[test]
fn confirmation_at_the_deadline_is_too_late() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    bench.clock.advance(Duration::from_millis(10));
    bench.deadman.confirm([(&armed, at(20))]);
    assert_eq!(bench.triggered(), Some((at(10), 1)));
}

#[test]
fn value_of_another_set_moves_nothing() {
    let (ours, theirs) = (Bench::new(), Bench::new());
    let (armed, foreign) = (ours.arm(10, 1), theirs.arm(10, 1));
    ours.deadman.confirm([(&foreign, at(20))]);
    ours.deadman.disarm(foreign);
    assert_eq!((ours.triggered(), ours.deadman.armed()), (Some((at(10), 1)), 1));
    ours.deadman.confirm([(&armed, at(30))]);
    assert_eq!(ours.triggered(), Some((at(30), 1)));
}

#[test]
fn trigger_has_the_current_subject_for_an_unchanged_instant() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    bench.trigger.fail(true);
    bench.deadman.disarm(armed);
    bench.trigger.fail(false);
    let _armed = bench.arm(10, 2);
    assert_eq!(bench.triggered(), Some((at(10), 2)));
}

#[test]
fn ended_and_tightened_deadlines_leave_few_outdated_places() {
    const MANY: u64 = 1_000;
    let bench = Bench::new();
    let mut lasting: Vec<ArmedDeadline> = (0..10).map(|n| bench.arm(10 * MANY + n, n)).collect();
    bench.deadman.confirm([(&lasting[8], at(30 * MANY))]);
    for n in 0..MANY {
        // None of them is ever the earliest, so that only `prune` removes them.
        bench.deadman.disarm(bench.arm(20 * MANY + n, n));
        bench.deadman.confirm([(&lasting[9], at(40 * MANY + n))]);
        bench.deadman.tighten(&lasting[8], at(30 * MANY - n));
        let set = bench.deadman.lock();
        assert!(set.order.len() <= 4 * (set.deadlines.len() + 1) + 64, "{} places", set.order.len());
    }
    assert_eq!(bench.trigger.calls(), 1);
    for n in 0..10 {
        let expected = match n {
            8 => 29 * MANY + 1,
            9 => 41 * MANY - 1,
            _ => 10 * MANY + n,
        };
        assert_eq!(bench.triggered(), Some((at(expected), n)));
        bench.deadman.disarm(lasting.remove(0));
    }
    assert_eq!(bench.triggered(), None);
}

/// Shows I11.
#[test]
fn few_outdated_places_stay_until_they_are_the_first() {
    let bench = Bench::new();
    let armed: Vec<ArmedDeadline> = (0..100).map(|n| bench.arm(1_000 + n, n)).collect();
    bench.deadman.confirm(armed.iter().skip(1).map(|armed| (armed, at(3_000))));
    assert_eq!(bench.deadman.lock().order.len(), 199);
}

/// One step. Numbers select an armed deadline, or are instants in milliseconds.
#[derive(Clone, Debug)]
enum Step {
    Arm(u64),
    Confirm(Vec<(usize, u64)>),
    Tighten(usize, u64),
    Disarm(usize),
    Advance(u64),
    Fail(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let instant = || 0..500_u64;
    prop_oneof![
        4 => instant().prop_map(Step::Arm),
        4 => vec((any::<usize>(), instant()), 0..4).prop_map(Step::Confirm),
        2 => (any::<usize>(), instant()).prop_map(|(n, at)| Step::Tighten(n, at)),
        2 => any::<usize>().prop_map(Step::Disarm),
        2 => (0..20_u64).prop_map(Step::Advance),
        1 => any::<bool>().prop_map(Step::Fail),
    ]
}

struct ModelDeadline {
    at: u64,
    epoch: u64,
    is_final: bool,
    armed: ArmedDeadline,
}

#[derive(Default)]
struct Model {
    now: u64,
    armed: Vec<ModelDeadline>,
    failing: bool,
    triggered: Option<(u64, u64)>,
    calls: usize,
}

impl Model {
    fn minimum(&self) -> Option<(u64, u64)> {
        self.armed.iter().map(|one| (one.at, one.epoch)).min()
    }

    fn set_trigger(&mut self) -> bool {
        if self.triggered == self.minimum() {
            return true;
        }
        self.calls += 1;
        if !self.failing {
            self.triggered = self.minimum();
        }
        !self.failing
    }

    fn index(&self, n: usize) -> Option<usize> {
        n.checked_rem(self.armed.len())
    }
}

/// Takes a step in the set and the model. Epochs increase, so they order equal instants as generations do.
fn take(bench: &Bench, model: &mut Model, epoch: u64, step: Step) {
    match step {
        Step::Arm(millis) => {
            let armed = bench.deadman.arm(subject(epoch), at(millis));
            if millis <= model.now {
                assert!(matches!(armed, Err(ArmError::Passed)));
                return;
            }
            let triggered = model.triggered;
            // An earlier deadline that the trigger had refused is set now, too.
            let would_set = triggered != model.minimum().into_iter().chain([(millis, epoch)]).min();
            model.calls += usize::from(would_set);
            if would_set && model.failing {
                assert!(matches!(armed, Err(ArmError::Kernel(_))));
                return;
            }
            model.armed.push(ModelDeadline { at: millis, epoch, is_final: false, armed: armed.unwrap() });
            model.triggered = model.minimum();
        }
        Step::Confirm(moves) => {
            let moves: Vec<(usize, u64)> =
                moves.into_iter().filter_map(|(n, millis)| Some((model.index(n)?, millis))).collect();
            let batch = moves.iter().map(|&(index, millis)| (&model.armed[index].armed, at(millis)));
            bench.deadman.confirm(batch);
            for (index, millis) in moves {
                let deadline = &mut model.armed[index];
                if model.now < deadline.at && !deadline.is_final {
                    deadline.at = millis.max(deadline.at);
                }
            }
            model.set_trigger();
        }
        Step::Tighten(n, millis) => {
            let Some(index) = model.index(n) else { return };
            let deadline = &mut model.armed[index];
            bench.deadman.tighten(&deadline.armed, at(millis));
            deadline.at = millis.min(deadline.at);
            deadline.is_final = true;
            model.set_trigger();
        }
        Step::Disarm(n) => {
            let Some(index) = model.index(n) else { return };
            bench.deadman.disarm(model.armed.remove(index).armed);
            model.set_trigger();
        }
        Step::Advance(millis) => {
            model.now += millis;
            bench.clock.advance_to(at(model.now));
        }
        Step::Fail(failing) => {
            model.failing = failing;
            bench.trigger.fail(failing);
        }
    }
}

proptest! {
    /// Shows I4.
    #[test]
    fn trigger_has_the_minimum_and_is_called_only_for_changes(steps in vec(step(), 0..60)) {
        let (bench, mut model) = (Bench::new(), Model::default());
        for (epoch, step) in (0..).zip(steps) {
            let before = bench.triggered();
            take(&bench, &mut model, epoch, step);
            prop_assert_eq!(bench.triggered(), model.triggered.map(|(millis, epoch)| (at(millis), epoch)));
            prop_assert_eq!(bench.trigger.calls(), model.calls);
            prop_assert_eq!(bench.deadman.armed(), model.armed.len());
            if model.failing {
                prop_assert_eq!(bench.triggered(), before, "a failing trigger keeps its deadline");
            }
        }
        bench.trigger.fail(false);
        let _last = bench.arm(10_000, u64::MAX);
        let (millis, epoch) = model.minimum().unwrap_or((10_000, u64::MAX));
        prop_assert_eq!(bench.triggered(), Some((at(millis), epoch)), "told again once it can be");
    }
}

#[test]
fn places_in_ascending_order_need_no_heap() {
    let mut order = DeadlineOrder::default();
    for nanos in 0..1_000 {
        order.insert(DeadlineEntry { at: Instant::from_nanos(nanos), generation: 0, id: 0 });
    }
    assert!(order.others.is_empty());
}
