//! Advancing on idle, in a tokio runtime and in a hand-written executor: 10,000 timers, each woken exactly at its
//! deadline, with the same trace in every run.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake},
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, Instant};

const TIMERS: u64 = 10_000;

type Trace = Arc<Mutex<Vec<(u64, Instant)>>>;

/// Waits twice, for pseudo-random spans that often coincide.
async fn timer(clock: MockClock, id: u64, trace: Trace) {
    for round in 1..=2 {
        let span = Duration::from_millis(id.wrapping_mul(2_654_435_761) % 3_001 * round);
        let deadline = clock.now().after(span);
        clock.sleep_until(deadline).await;
        assert_eq!(clock.now(), deadline);
        trace.lock().unwrap().push((id, clock.now()));
    }
}

fn assert_in_order(trace: &[(u64, Instant)]) {
    assert_eq!(trace.len() as u64, 2 * TIMERS);
    assert!(trace.is_sorted_by_key(|(_, at)| *at));
}

fn on_tokio() -> Vec<(u64, Instant)> {
    let clock = MockClock::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park({
            let clock = clock.clone();
            move || _ = clock.advance_to_next()
        })
        .build()
        .unwrap();
    let trace = Trace::default();
    runtime.block_on(async {
        let timers: Vec<_> =
            (0..TIMERS).map(|id| tokio::spawn(timer(clock.clone(), id, Arc::clone(&trace)))).collect();
        for timer in timers {
            timer.await.unwrap();
        }
    });
    assert_eq!(clock.sleepers(), 0);
    let trace = trace.lock().unwrap();
    trace.clone()
}

#[test]
fn clock_advances_when_a_tokio_runtime_parks() {
    let trace = on_tokio();
    assert_in_order(&trace);
    assert_eq!(trace, on_tokio());
}

/// Puts a task into the queue of runnable tasks.
struct Ready {
    id: usize,
    queue: Arc<Mutex<VecDeque<usize>>>,
}
impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.queue.lock().unwrap().push_back(self.id);
    }
}

/// Runs all runnable tasks, and advances the clock when there is none.
fn on_own_executor() -> Vec<(u64, Instant)> {
    let (clock, trace) = (MockClock::new(), Trace::default());
    let mut tasks: Vec<Option<Pin<Box<dyn Future<Output = ()>>>>> = Vec::new();
    for id in 0..TIMERS {
        tasks.push(Some(Box::pin(timer(clock.clone(), id, Arc::clone(&trace)))));
    }
    let queue: Arc<Mutex<VecDeque<usize>>> = Arc::new(Mutex::new((0..tasks.len()).collect()));
    loop {
        let next = queue.lock().unwrap().pop_front();
        let Some(id) = next else {
            if clock.advance_to_next().is_none() {
                break;
            }
            continue;
        };
        let waker = Arc::new(Ready { id, queue: Arc::clone(&queue) }).into();
        let Some(task) = &mut tasks[id] else { continue };
        if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            tasks[id] = None;
        }
    }
    assert!(tasks.iter().all(Option::is_none));
    let trace = trace.lock().unwrap();
    trace.clone()
}

#[test]
fn clock_advances_when_a_hand_written_executor_is_idle() {
    let trace = on_own_executor();
    assert_in_order(&trace);
    assert_eq!(trace, on_own_executor());
}
