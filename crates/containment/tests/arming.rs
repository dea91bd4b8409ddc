//! A supervision and its keeper: a deadline is in force once the keeper has confirmed it, a stop is heeded from the start
//! on, and the supervision lasts until the keeper has proof.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use rustix::process::Signal;
use std::{cell::Cell, sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_containment::{
    Controls, KeeperOrder, KillReason, ProcessEnd, SignalForCommand, SimulatedKeeper, StopTimeouts,
    Supervised, Supervision, UnprovenKeeperEnd,
};

struct Scene {
    clock: Arc<MockClock>,
    deadline: watch::Sender<Option<Instant>>,
    stop: CancellationToken,
    keeper: SimulatedKeeper,
    supervision: Supervision,
    /// Kept, because a supervision ends with its senders.
    _signals: broadcast::Sender<SignalForCommand>,
}

const KILLING: Duration = Duration::from_millis(200);

impl Scene {
    fn of_a_standby() -> Self {
        Self::of(SimulatedKeeper::start)
    }

    fn of(start: fn(Arc<dyn Clock>, StopTimeouts, Controls) -> (SimulatedKeeper, Supervision)) -> Self {
        let stop = CancellationToken::new();
        let clock = Arc::new(MockClock::new());
        let (deadline, receiver) = watch::channel(None);
        let signals = broadcast::Sender::new(1);
        let controls = Controls {
            signals: signals.subscribe(),
            stop: stop.clone(),
            stop_signal: None,
            kill: CancellationToken::new(),
            deadline: receiver,
        };
        let timeouts = StopTimeouts {
            pre_stop_timeout: Duration::ZERO,
            least_to_stop: Duration::ZERO,
            stop_timeout: Duration::from_secs(8),
            killing: KILLING,
        };
        let shared = Arc::clone(&clock) as Arc<dyn Clock>;
        let (keeper, supervision) = start(shared, timeouts, controls);
        Self { clock, deadline, stop, keeper, supervision, _signals: signals }
    }

    fn supervised(
        self,
        plays: impl AsyncFnOnce(SimulatedKeeper, &MockClock, &watch::Sender<Option<Instant>>),
    ) -> Result<Supervised, UnprovenKeeperEnd> {
        let Self { clock, deadline, keeper, mut supervision, _signals, .. } = self;
        let passes = Arc::clone(&clock);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.on_thread_park(move || _ = passes.advance_to_next()).build().unwrap();
        let supervising = async {
            supervision.executed().await.unwrap();
            supervision.run().await
        };
        runtime.block_on(async { tokio::join!(supervising, plays(keeper, &clock, &deadline)).0 })
    }
}

async fn sent(keeper: &mut SimulatedKeeper) -> Option<Instant> {
    match keeper.order().await {
        Some(KeeperOrder::Deadline(deadline)) => deadline,
        other => panic!("{other:?}"),
    }
}

/// Shows I4.
#[test]
fn deadline_is_in_force_only_after_the_keeper_has_confirmed_it() {
    let scene = Scene::of_a_standby();
    let mut in_force = scene.supervision.in_force();
    let ended = scene.supervised(async |mut keeper, clock, deadline| {
        let at = clock.now().after(Duration::from_secs(16));
        deadline.send_replace(Some(at));
        assert_eq!(sent(&mut keeper).await, Some(at));
        // Without a confirmation it is sent again, after twice the time.
        let mut waited = Vec::new();
        for _ in 0..3 {
            let since = clock.now();
            assert_eq!(sent(&mut keeper).await, Some(at));
            waited.push(clock.now().since(since).as_millis());
            assert_eq!(*in_force.borrow(), None, "the keeper has confirmed nothing");
        }
        assert_eq!(waited, [100, 200, 400]);
        keeper.in_force(Some(at));
        assert!(in_force.wait_for(|confirmed| *confirmed == Some(at)).await.is_ok());

        deadline.send_replace(None);
        assert_eq!(sent(&mut keeper).await, None);
        assert_eq!(sent(&mut keeper).await, None);
        assert_eq!(*in_force.borrow(), Some(at));
        keeper.in_force(None);
        assert!(in_force.wait_for(Option::is_none).await.is_ok());
        keeper.ends_without_processes();
    });
    assert_eq!(ended.unwrap().killed, None);
}

/// The supervisor kills by the deadline, whether or not the keeper has confirmed it. Shows I4.
#[test]
fn command_of_a_keeper_that_confirms_nothing_is_killed_before_the_deadline() {
    let scene = Scene::of_a_standby();
    let in_force = scene.supervision.in_force();
    let ended = scene.supervised(async |mut keeper, clock, deadline| {
        let at = clock.now().after(Duration::from_secs(16));
        deadline.send_replace(Some(at));
        loop {
            match keeper.order().await {
                Some(KeeperOrder::Deadline(sent)) => assert_eq!(sent, Some(at)),
                Some(KeeperOrder::Kill) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(clock.now(), at.before(KILLING));
        assert_eq!(*in_force.borrow(), None);
        keeper.ends_without_processes();
    });
    assert_eq!(ended.unwrap().killed, Some(KillReason::Deadline));
}

/// Shows I10 and I4.
#[test]
fn execution_that_hangs_delays_neither_a_stop_nor_the_deadline() {
    let scene = Scene::of(SimulatedKeeper::begin);
    let stop = scene.stop.clone();
    let term = ProcessEnd::Signalled(Signal::TERM.as_raw());
    let stopped = scene.supervised(async |mut keeper, _, _| {
        stop.cancel();
        assert_eq!(keeper.order().await, Some(KeeperOrder::Signal(Signal::TERM)));
        keeper.command_ended(term);
        keeper.ends_without_processes();
    });
    let stopped = stopped.unwrap();
    assert_eq!((stopped.ended, stopped.by_itself), (Some(term), false));
    let killed = Scene::of(SimulatedKeeper::begin).supervised(async |mut keeper, clock, deadline| {
        let at = clock.now().after(Duration::from_secs(16));
        deadline.send_replace(Some(at));
        assert_eq!(sent(&mut keeper).await, Some(at));
        keeper.in_force(Some(at));
        assert_eq!(keeper.order().await, Some(KeeperOrder::Kill));
        assert_eq!(clock.now(), at.before(KILLING));
        keeper.ends_without_processes();
    });
    assert_eq!(killed.unwrap().killed, Some(KillReason::Deadline));
}

/// Shows I6.
#[test]
fn supervision_of_a_command_that_has_ended_lasts_until_nothing_of_it_is_left() {
    let scene = Scene::of_a_standby();
    let is_proven = Cell::new(false);
    let ended = scene.supervised(async |mut keeper, _, _| {
        keeper.command_ended(ProcessEnd::Exited(0));
        assert_eq!(keeper.order().await, Some(KeeperOrder::TellRest));
        assert_eq!(keeper.order().await, Some(KeeperOrder::Kill), "the rest has the stop timeout");
        keeper.kills();
        is_proven.set(true);
        keeper.ends_without_processes();
    });
    assert!(is_proven.get(), "it has not waited");
    assert!(ended.unwrap().by_itself);
}
