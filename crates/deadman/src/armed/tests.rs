//! The set against a model that is too simple to be wrong: a list of deadlines and its minimum.

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

    fn arm(&self, millis: u64, epoch: u64) -> Armed {
        self.deadman.arm(subject(epoch), at(millis)).unwrap()
    }

    /// What the trigger has been told.
    fn told(&self) -> Option<(Instant, u64)> {
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
fn a_deadline_in_the_past_is_refused() {
    let bench = Bench::new();
    bench.clock.advance_to(at(10));
    assert!(matches!(bench.deadman.arm(subject(1), at(10)), Err(ArmError::Passed)));
    assert_eq!((bench.deadman.armed(), bench.trigger.calls()), (0, 0));
}

/// Shows I4.
#[test]
fn a_passed_deadline_is_not_confirmed_away() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    bench.clock.advance_to(at(10));
    bench.deadman.confirm([(&armed, at(20))]);
    assert_eq!(bench.told(), Some((at(10), 1)));
    assert!(bench.trigger.check());
}

/// Shows I4.
#[test]
fn tightened_deadline_is_not_confirmed_later() {
    let bench = Bench::new();
    let armed = bench.arm(20, 1);
    bench.deadman.tighten(&armed, at(10));
    bench.deadman.confirm([(&armed, at(30))]);
    assert_eq!(bench.told(), Some((at(10), 1)));
    bench.deadman.tighten(&armed, at(5));
    assert_eq!(bench.told(), Some((at(5), 1)));
    bench.deadman.disarm(armed);
    assert_eq!(bench.told(), None);
}

/// The leadership is lost all the same: what was confirmed last is all the time that it has.
#[test]
fn deadline_that_tightening_finds_earlier_is_final_too() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    bench.deadman.tighten(&armed, at(20));
    bench.deadman.confirm([(&armed, at(30))]);
    assert_eq!(bench.told(), Some((at(10), 1)));
}

#[test]
fn dropping_the_value_or_the_set_disarms_nothing() {
    let bench = Bench::new();
    drop(bench.arm(10, 1));
    let Bench { clock, trigger, deadman } = bench;
    assert_eq!(deadman.armed(), 1);
    drop(deadman);
    clock.advance_to(at(10));
    assert!(trigger.check());
}

#[test]
fn a_panicking_batch_disarms_nothing() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    let batch = [at(20), at(30)].into_iter().map(|new| {
        assert_ne!(new, at(30), "a batch that panics half-way");
        (&armed, new)
    });
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.deadman.confirm(batch)));
    assert!(outcome.is_err());
    assert_eq!(bench.told(), Some((at(10), 1)));
    bench.deadman.disarm(armed);
    assert_eq!(bench.told(), None);
}

#[test]
fn a_value_of_another_set_moves_nothing() {
    let (ours, theirs) = (Bench::new(), Bench::new());
    let (armed, foreign) = (ours.arm(10, 1), theirs.arm(10, 1));
    ours.deadman.confirm([(&foreign, at(20))]);
    ours.deadman.disarm(foreign);
    assert_eq!((ours.told(), ours.deadman.armed()), (Some((at(10), 1)), 1));
    ours.deadman.confirm([(&armed, at(30))]);
    assert_eq!(ours.told(), Some((at(30), 1)));
}

#[test]
fn the_last_words_name_the_present_owner_of_an_instant() {
    let bench = Bench::new();
    let armed = bench.arm(10, 1);
    bench.trigger.fail(true);
    bench.deadman.disarm(armed);
    bench.trigger.fail(false);
    let _armed = bench.arm(10, 2);
    assert_eq!(bench.told(), Some((at(10), 2)));
}

#[test]
fn a_whole_batch_is_one_call_and_an_unchanged_earliest_none() {
    let bench = Bench::new();
    let armed: Vec<Armed> = (0..1_000).map(|n| bench.arm(1_000 + n, n)).collect();
    assert_eq!(bench.trigger.calls(), 1);
    bench.deadman.confirm(armed.iter().zip((0..).map(|n| at(3_000 - n))));
    assert_eq!(bench.trigger.calls(), 2);
    assert_eq!(bench.told(), Some((at(2_001), 999)));
    bench.deadman.confirm([(&armed[0], at(4_000))]);
    bench.deadman.tighten(&armed[0], at(3_500));
    assert_eq!(bench.trigger.calls(), 2);
}

#[test]
fn deadlines_that_ended_or_were_tightened_leave_little_behind() {
    const MANY: u64 = 1_000;
    let bench = Bench::new();
    let mut lasting: Vec<Armed> = (0..10).map(|n| bench.arm(10 * MANY + n, n)).collect();
    bench.deadman.confirm([(&lasting[8], at(30 * MANY))]);
    for n in 0..MANY {
        // None of them is ever the earliest, so that nothing is found out about them by the way.
        bench.deadman.disarm(bench.arm(20 * MANY + n, n));
        bench.deadman.confirm([(&lasting[9], at(40 * MANY + n))]);
        bench.deadman.tighten(&lasting[8], at(30 * MANY - n));
        let set = bench.deadman.lock();
        assert!(set.order.len() <= 4 * (set.deadlines.len() + 1) + 64, "{} places", set.order.len());
    }
    assert_eq!(bench.trigger.calls(), 1);
    for n in 0..10 {
        let told = match n {
            8 => 29 * MANY + 1,
            9 => 41 * MANY - 1,
            _ => 10 * MANY + n,
        };
        assert_eq!(bench.told(), Some((at(told), n)));
        bench.deadman.disarm(lasting.remove(0));
    }
    assert_eq!(bench.told(), None);
}

/// One step. Numbers pick one of the armed deadlines, and an instant in milliseconds.
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
    armed: Armed,
}

#[derive(Default)]
struct Model {
    now: u64,
    /// Oldest first.
    armed: Vec<ModelDeadline>,
    failing: bool,
    told: Option<(u64, u64)>,
    calls: usize,
}

impl Model {
    fn minimum(&self) -> Option<(u64, u64)> {
        self.armed.iter().map(|one| (one.at, one.epoch)).min()
    }

    /// Tells the earliest if it is another than was told; whether that worked.
    fn tell(&mut self) -> bool {
        if self.told == self.minimum() {
            return true;
        }
        self.calls += 1;
        if !self.failing {
            self.told = self.minimum();
        }
        !self.failing
    }

    fn index(&self, n: usize) -> Option<usize> {
        n.checked_rem(self.armed.len())
    }
}

/// Takes a step in both. Epochs count up, so that they order deadlines of one instant as generations do.
fn take(bench: &Bench, model: &mut Model, epoch: u64, step: Step) {
    match step {
        Step::Arm(millis) => {
            let armed = bench.deadman.arm(subject(epoch), at(millis));
            if millis <= model.now {
                assert!(matches!(armed, Err(ArmError::Passed)));
                return;
            }
            let told = model.told;
            // The earliest is told even where it is not the new one, if it could not be told before.
            let would_tell = told != model.minimum().into_iter().chain([(millis, epoch)]).min();
            model.calls += usize::from(would_tell);
            if would_tell && model.failing {
                assert!(matches!(armed, Err(ArmError::Kernel(_))));
                return;
            }
            model.armed.push(ModelDeadline { at: millis, epoch, is_final: false, armed: armed.unwrap() });
            model.told = model.minimum();
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
            model.tell();
        }
        Step::Tighten(n, millis) => {
            let Some(index) = model.index(n) else { return };
            let deadline = &mut model.armed[index];
            bench.deadman.tighten(&deadline.armed, at(millis));
            deadline.at = millis.min(deadline.at);
            deadline.is_final = true;
            model.tell();
        }
        Step::Disarm(n) => {
            let Some(index) = model.index(n) else { return };
            bench.deadman.disarm(model.armed.remove(index).armed);
            model.tell();
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
    fn the_trigger_knows_the_minimum_and_is_not_called_more_than_it_must(steps in vec(step(), 0..60)) {
        let (bench, mut model) = (Bench::new(), Model::default());
        for (epoch, step) in (0..).zip(steps) {
            let before = bench.told();
            take(&bench, &mut model, epoch, step);
            prop_assert_eq!(bench.told(), model.told.map(|(millis, epoch)| (at(millis), epoch)));
            prop_assert_eq!(bench.trigger.calls(), model.calls);
            prop_assert_eq!(bench.deadman.armed(), model.armed.len());
            if model.failing {
                prop_assert_eq!(bench.told(), before, "a failing trigger keeps what it has");
            }
        }
        bench.trigger.fail(false);
        let _last = bench.arm(10_000, u64::MAX);
        let (millis, epoch) = model.minimum().unwrap_or((10_000, u64::MAX));
        prop_assert_eq!(bench.told(), Some((at(millis), epoch)), "told again once it can be");
    }
}
