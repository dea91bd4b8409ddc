//! The deadman of a simulated process: a timer in the kernel. It fires even if the process does not run (I4).

use crate::{
    clock::SimClock,
    executor::{Process, Task},
    world::World,
};
use std::{fmt, io, sync::Arc};
use tokio::sync::{Notify, watch};
use vvm_clock::{Clock as _, Instant};
use vvm_deadman::{Deadman, Subject, Trigger};

/// Starts the timer of `process`. Returns the deadman, and its deadline as it moves.
pub(super) fn start(
    world: &Arc<World>,
    process: Process,
    clock: &SimClock,
) -> (Deadman, watch::Receiver<Option<Instant>>) {
    let changed = Arc::new(Notify::new());
    let timer = kill_at_deadline(Arc::clone(world), process, clock.clone(), Arc::clone(&changed));
    world.spawn(Process::WORLD, "deadman", Box::pin(timer));
    let (moves, deadline) = watch::channel(None);
    let trigger = SimTrigger { world: Arc::clone(world), process, clock: clock.clone(), changed, moves };
    (Deadman::with_trigger(Arc::new(trigger)), deadline)
}

async fn kill_at_deadline(world: Arc<World>, process: Process, clock: SimClock, changed: Arc<Notify>) {
    while world.is_alive(process) {
        let due: Task = match world.deadline(process) {
            Some(deadline) => clock.sleep_until(deadline),
            None => Box::pin(std::future::pending()),
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = due => {
                if world.is_alive(process) && world.deadline(process).is_some_and(|at| at <= clock.peek()) {
                    world.count(|counts| counts.kills += 1);
                    world.died(process, "is killed at its deadline");
                }
            }
        }
    }
}

struct SimTrigger {
    world: Arc<World>,
    process: Process,
    clock: SimClock,
    changed: Arc<Notify>,
    moves: watch::Sender<Option<Instant>>,
}

impl Trigger for SimTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.world.deadline_set(self.process, earliest.map(|(at, _)| at));
        self.changed.notify_one();
        self.moves.send_replace(earliest.map(|(at, _)| at));
        Ok(())
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl fmt::Debug for SimTrigger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "deadman of {}", self.process)
    }
}
