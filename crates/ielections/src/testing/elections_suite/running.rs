//! `Leadership::run`: a stop token, and the hand-back when the work has ended (I6). Several leaderships, one after the
//! other and at once. And what a `Standing` shows.
#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{ElectionsTestSuite, Process, Scene};
use crate::{
    Candidacy, Epoch, InsufficientTime, Leadership, Loss, ReleaseOutcome, Standing,
    testing::{
        lateness::{always, two_lead},
        mock::{Fault, Verb},
    },
};
use futures_util::{
    StreamExt,
    future::{join, join_all, poll_fn},
    stream::FuturesUnordered,
};
use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};
use vvm_deadman::Deadman;

struct AtWork<'run> {
    deadman: &'run Deadman,
    armed_until_dropped: &'run AtomicBool,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.armed_until_dropped.store(self.deadman.armed() == 1, Ordering::Relaxed);
    }
}

/// A future may be ready and still hold what is at work, as tokio's `Timeout` does. Shows I6.
pub async fn work_that_ends_hands_back(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let epoch = leadership.epoch();
    let armed_until_dropped = AtomicBool::new(false);
    let at_work = AtWork { deadman: &process.deadman, armed_until_dropped: &armed_until_dropped };
    let work = |_stop, standing: Standing| {
        poll_fn(move |_| {
            let _held = &at_work;
            Poll::Ready(standing.epoch())
        })
    };
    let ran = leadership.run(work).await;
    assert_eq!((ran.output, ran.loss, ran.release), (epoch, None, ReleaseOutcome::Released));
    assert_eq!(process.deadman.armed(), 0);
    assert!(armed_until_dropped.into_inner(), "disarmed before the work was dropped");
}

pub async fn run_cancels_the_work_and_waits_for_it(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let incarnation = leadership.incarnation();
    let running = leadership.run(async |stop, _standing| {
        stop.cancelled().await;
        scene.pass(scene.percent(130)).await;
        scene.slot().await.entry().map(crate::Entry::incarnation)
    });
    let closing = async {
        scene.pass(scene.percent(5)).await;
        process.elections.cleanup().await;
    };
    let (ran, ()) = join(running, closing).await;
    assert_eq!(ran.output, Some(incarnation), "released while work runs");
    assert_eq!((ran.loss, ran.release), (Some(Loss::Closing), ReleaseOutcome::Released));
    assert_eq!(scene.slot().await.entry(), None);
}

/// The deadline stays until the work has stopped.
pub async fn a_loss_cancels_the_work_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::Hang);
    let ran = leadership
        .run(async |stop, standing| {
            stop.cancelled().await;
            assert!(scene.now() <= scene.timing.loss_at(sent_at).after(scene.slack));
            assert!(standing.loss().is_some());
            assert_eq!(process.deadman.armed(), 1, "disarmed while work runs");
        })
        .await;
    assert!(matches!(ran.loss, Some(Loss::StorageUnreachable { .. })), "{:?}", ran.loss);
    assert_eq!(process.deadman.armed(), 0);
}

pub async fn epochs_rise_over_release_expiry_and_reopening(scene: &Scene<impl ElectionsTestSuite>) {
    let mut epochs = Vec::new();
    let process = scene.process().await;
    for _ in 0..2 {
        let leadership = scene.lead(&process, "same").await;
        epochs.push(leadership.epoch());
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    }
    let crashing = scene.lead(&process, "same").await;
    epochs.push(crashing.epoch());
    process.crash();
    drop(crashing);

    let storage = scene.suite.open().await;
    let reopened = Process::start(storage.clone(), scene.clock.clone());
    let leadership = scene.lead(&reopened, "same").await;
    epochs.push(leadership.epoch());
    leadership.release().await;
    reopened.elections.cleanup().await;
    storage.close().await;

    let process = scene.process().await;
    let leadership = scene.lead(&process, "same").await;
    epochs.push(leadership.epoch());
    leadership.release().await;
    rise(&epochs);
}

pub(super) fn rise(epochs: &[Epoch]) {
    always(epochs.is_sorted_by(|earlier, later| earlier < later), format_args!("epochs {epochs:?}"));
}

pub async fn eight_leaders_in_turn_have_rising_epochs(scene: &Scene<impl ElectionsTestSuite>) {
    let mut processes = Vec::new();
    for _ in 0..8 {
        processes.push(scene.process().await);
    }
    let leading = Mutex::new(None::<Standing>);
    let epochs = Mutex::new(Vec::new());
    let turns = processes.iter().enumerate().map(|(at, process)| {
        let (leading, epochs) = (&leading, &epochs);
        async move {
            let leadership = scene.lead(process, &format!("candidate {at}")).await;
            let other = leading.lock().unwrap().replace(leadership.standing().clone());
            if let Some(other) = other {
                two_lead("another one leads", [other.remaining(), leadership.remaining()]);
            }
            epochs.lock().unwrap().push(leadership.epoch());
            scene.pass(scene.percent(5)).await;
            *leading.lock().unwrap() = None;
            leadership.release().await;
        }
    });
    join_all(turns).await;
    let epochs = epochs.into_inner().unwrap();
    assert_eq!(epochs.len(), 8);
    rise(&epochs);
}

pub async fn the_same_holder_twice_is_two_leaders_in_turn(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "same").await;
    let mut waiting = Box::pin(scene.lead(&process, "same"));
    scene.leads_alone(&leadership, &mut waiting, scene.percent(150)).await;
    let (epoch, incarnation) = (leadership.epoch(), leadership.incarnation());
    leadership.release().await;
    let successor = waiting.await;
    rise(&[epoch, successor.epoch()]);
    assert_ne!(successor.incarnation(), incarnation);
    successor.release().await;
}

fn any_of<Suite: ElectionsTestSuite>(
    scene: &Scene<Suite>,
    slots: u32,
    holder: &str,
) -> Candidacy<Suite::Key> {
    Candidacy { slots: (0..slots).map(|slot| scene.key(slot)).collect(), terms: scene.terms(holder) }
}

/// Each leader has its own slot. The remaining candidate leads once a slot is free. Shows I1.
pub async fn as_many_lead_as_there_are_slots(scene: &Scene<impl ElectionsTestSuite>) {
    const SLOTS: u32 = 3;
    let processes = [scene.process().await, scene.process().await];
    let mut campaigns: FuturesUnordered<_> = (0..5)
        .map(|at| {
            let candidacy = any_of(scene, SLOTS, &format!("candidate {at}"));
            processes[at % 2].elections.acquire(candidacy)
        })
        .collect();
    let mut leading = Vec::new();
    for _ in 0..SLOTS {
        leading.push(campaigns.next().await.unwrap().unwrap());
    }
    let left = || leading.iter().map(|(_, leadership)| leadership.remaining());
    let slots: BTreeSet<_> = leading.iter().map(|(key, _)| key.clone()).collect();
    if slots.len() < SLOTS as usize {
        two_lead("one slot twice", left());
    }
    if !scene.waits(campaigns.next(), scene.percent(125)).await {
        two_lead("more leaders than slots", left());
    }
    let (freed, leadership) = leading.pop().unwrap();
    leadership.release().await;
    let released = scene.now();
    let (key, successor) = campaigns.next().await.unwrap().unwrap();
    assert_eq!(key, freed);
    assert!(scene.now() <= released.after(scene.poll() + scene.slack));
    drop(campaigns);
    successor.release().await;
    for (_, leadership) in leading {
        leadership.release().await;
    }
}

pub async fn leaderships_of_one_process_end_on_their_own(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let (_, one) = process.elections.acquire(any_of(scene, 2, "same")).await.unwrap();
    let (_, other) = process.elections.acquire(any_of(scene, 2, "same")).await.unwrap();
    assert_eq!(process.deadman.armed(), 2);
    one.release().await;
    assert_eq!(process.deadman.armed(), 1);
    scene.pass(scene.percent(125)).await;
    assert_eq!(other.standing().loss(), None);
    other.release().await;
    assert_eq!((process.deadman.armed(), process.trigger.earliest()), (0, None));
}

pub async fn closing_one_handle_disturbs_no_other<Suite: ElectionsTestSuite>(scene: &Scene<Suite>) {
    let (closing, staying) = (scene.suite.open().await, scene.process().await);
    let process = Process::start(closing.clone(), scene.clock.clone());
    let (_, leaving) = process.elections.acquire(any_of(scene, 2, "leaving")).await.unwrap();
    let (_, leadership): (_, Leadership) =
        staying.elections.acquire(any_of(scene, 2, "staying")).await.unwrap();
    leaving.release().await;
    process.elections.cleanup().await;
    closing.close().await;
    scene.pass(scene.percent(150)).await;
    assert_eq!(leadership.standing().loss(), None);
    leadership.release().await;
}

pub async fn a_standing_shows_how_much_time_is_left(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let standing = leadership.standing().clone();
    let remaining = standing.remaining();
    assert!(remaining <= scene.percent(80) && remaining + scene.slack >= scene.percent(70), "{remaining:?}");
    assert_eq!(standing.ensure(Duration::from_millis(1)), Ok(()));
    let too_much = standing.ensure(scene.ttl.get());
    assert!(matches!(too_much, Err(InsufficientTime::TooShort { .. })), "{too_much:?}");
    leadership.release().await;
    assert_eq!(standing.remaining(), Duration::ZERO);
    assert_eq!(standing.ensure(Duration::ZERO), Err(InsufficientTime::Lost(Loss::HandedBack)));
    assert_eq!(standing.lost().await, Loss::HandedBack);
}

/// At half a TTL without a renewal, and before the loss.
pub async fn a_standing_at_risk_is_a_warning(scene: &Scene<impl ElectionsTestSuite>) {
    let (_process, storage, leadership) = scene.faulty_leader().await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
    leadership.standing().at_risk().await;
    let at_risk_at = scene.timing.at_risk_at(sent_at);
    scene.not_before(at_risk_at, "at risk");
    assert!(scene.now() <= at_risk_at.after(scene.slack));
    leadership.lost().await;
    scene.not_before(scene.timing.loss_at(sent_at), "lost");
    assert_eq!(leadership.standing().at_risk().await, Duration::ZERO);
    storage.heal();
    leadership.release().await;
}
