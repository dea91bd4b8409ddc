//! A keeper that was started without a deadline and is armed later: the deadline is in force once the keeper has
//! confirmed it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::{sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_containment::{
    Controls, Killed, Order, SignalForCommand, SimulatedKeeper, StopTimeouts, Supervised, Supervision,
    Unproven,
};

/// A command that waits as a standby, with its keeper.
struct Scene {
    clock: Arc<MockClock>,
    deadline: watch::Sender<Option<Instant>>,
    keeper: SimulatedKeeper,
    supervision: Supervision,
    /// Kept, because a supervision ends with its senders.
    _signals: broadcast::Sender<SignalForCommand>,
}

const KILLING: Duration = Duration::from_millis(200);

impl Scene {
    fn of_a_standby() -> Self {
        let clock = Arc::new(MockClock::new());
        let (deadline, receiver) = watch::channel(None);
        let signals = broadcast::Sender::new(1);
        let controls = Controls {
            signals: signals.subscribe(),
            stop: CancellationToken::new(),
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
        let (keeper, supervision) = SimulatedKeeper::start(shared, timeouts, controls);
        Self { clock, deadline, keeper, supervision, _signals: signals }
    }

    /// Supervises while `plays` decides what the keeper does. Time passes whenever all tasks wait.
    fn supervised(
        self,
        plays: impl AsyncFnOnce(SimulatedKeeper, &MockClock, &watch::Sender<Option<Instant>>),
    ) -> Result<Supervised, Unproven> {
        let Self { clock, deadline, keeper, supervision, _signals } = self;
        let passes = Arc::clone(&clock);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.on_thread_park(move || _ = passes.advance_to_next()).build().unwrap();
        runtime.block_on(async { tokio::join!(supervision.run(), plays(keeper, &clock, &deadline)).0 })
    }
}

/// Returns the next deadline that is sent to the keeper.
async fn sent(keeper: &mut SimulatedKeeper) -> Option<Instant> {
    match keeper.order().await {
        Some(Order::Deadline(deadline)) => deadline,
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

        // A disarming is confirmed in the same way.
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
                Some(Order::Deadline(sent)) => assert_eq!(sent, Some(at)),
                Some(Order::Kill) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(clock.now(), at.before(KILLING));
        assert_eq!(*in_force.borrow(), None);
        keeper.ends_without_processes();
    });
    assert_eq!(ended.unwrap().killed, Some(Killed::Deadline));
}
