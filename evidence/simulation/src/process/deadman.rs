//! The deadman of a simulated process: a timer of the world that ends the process, even while it is paused.

use crate::{
    clock::{Process, SimClock, Task},
    world::World,
};
use std::{fmt, io, sync::Arc};
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant};
use vvm_deadman::{Deadman, Subject, Trigger};

pub(super) fn start(world: &Arc<World>, process: Process, clock: &SimClock) -> Deadman {
    let changed = Arc::new(Notify::new());
    let timer = kill_at_deadline(Arc::clone(world), process, clock.clone(), Arc::clone(&changed));
    world.spawn(Process::WORLD, "deadman", Box::pin(timer));
    let trigger = SimTrigger { world: Arc::clone(world), process, clock: clock.clone(), changed };
    Deadman::with_trigger(Arc::new(trigger))
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
}

impl Trigger for SimTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.world.deadline_set(self.process, earliest.map(|(at, _)| at));
        self.changed.notify_one();
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
