//! [`Guardian`]: the guardian of a simulated process, as that of `vvm run`. It has the record released after
//! the process died, once nothing of it is left.
//!
//! When it releases, and how, is the real code. Reaping and the notes of the host are simulated.

use super::{NAME, Started, storage_of};
use crate::{
    clock::{Process, SimClock},
    faults::FAULTS_END,
    world::{Signal, Told, World, end_of},
};
use fastrand::Rng;
use ielections::Ttl;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, watch};
use vvm_clock::{Clock, Instant};
use vvm_host::operate::{HostEnd, LeftBehind, StorageInspector};

/// How long processes outlive the kill deadline of their dead host at most: the TTL of 4 s leaves 80 ms on
/// the worst clocks.
const BEHIND_DEADLINE: Duration = Duration::from_millis(25);

pub(super) struct Guardian {
    world: Arc<World>,
    host: Process,
    clock: SimClock,
    ttl: Ttl,
    quiet_time: Duration,
    deadline: watch::Receiver<Option<Instant>>,
    /// Stops the host.
    stop: Arc<Notify>,
    /// No note is late or lost.
    has_every_note: bool,
    /// When it dies by itself.
    dies_after: Option<Duration>,
    rng: Rng,
}

/// Starts the guardian of the process, if it has one.
pub(super) fn start(started: &Started) {
    let Started { world, process, profile, deadline, stop, .. } = started;
    let mut rng = Rng::with_seed(profile.seed ^ 0x9e37_79b9_7f4a_7c15);
    if !profile.may_be_guarded() || rng.u32(..3) == 0 {
        return;
    }
    let up_to = |rng: &mut Rng, seconds: u64| Duration::from_secs(seconds).mul_f64(rng.f64());
    let guardian = Guardian {
        world: Arc::clone(world),
        host: *process,
        clock: profile.clock.clone(),
        ttl: profile.ttl,
        quiet_time: if rng.u32(..4) == 0 { up_to(&mut rng, 3) } else { Duration::ZERO },
        deadline: deadline.clone(),
        stop: Arc::clone(stop),
        has_every_note: rng.bool(),
        dies_after: (rng.u32(..12) == 0).then(|| up_to(&mut rng, 60)),
        rng,
    };
    let host_died = world.guards(*process, guardian.has_every_note);
    world.spawn(Process::WORLD, "guardian", Box::pin(guardian.live(host_died)));
}

/// Notes to the guardian of `host`, if it has one, the record that the host may leave behind. The note may be
/// late, doubled or lost.
pub(super) fn send_ticket(world: &Arc<World>, host: Process, claim: Option<LeftBehind>) {
    let Some(has_every_note) = world.has_every_note(host) else { return };
    let mut arrivals = vec![Duration::ZERO];
    {
        let mut state = world.state();
        let crate::world::State { rng, counts, .. } = &mut *state;
        counts.tickets += 1;
        match if has_every_note { 9 } else { rng.u32(..8) } {
            0 => {
                counts.tickets_lost += 1;
                arrivals.clear();
            }
            1 => {
                counts.tickets_late += 1;
                arrivals[0] = Duration::from_secs(20).mul_f64(rng.f64());
            }
            2 => {
                counts.tickets_doubled += 1;
                arrivals.push(Duration::from_secs(40).mul_f64(rng.f64()));
            }
            _ => {}
        }
    }
    for arrival in arrivals {
        if arrival.is_zero() {
            world.ticket_arrives(host, claim);
            continue;
        }
        let late = Arc::clone(world);
        let arrives = async move {
            late.clock.sleep(arrival).await;
            late.ticket_arrives(host, claim);
        };
        world.spawn(Process::WORLD, "late ticket", Box::pin(arrives));
    }
}

impl Guardian {
    async fn live(mut self, host_died: Arc<Notify>) {
        let dies = match self.dies_after {
            Some(after) if self.world.clock.now().after(after) < FAULTS_END => self.world.clock.sleep(after),
            _ => Box::pin(std::future::pending()),
        };
        let is_alive = tokio::select! {
            biased;
            () = host_died.notified() => true,
            () = dies => false,
        };
        if !is_alive {
            // The host notices, and stops.
            self.world.note(format_args!("the guardian of {} dies", self.host));
            self.world.count(|counts| counts.guardians_died += 1);
            self.stop.notify_one();
            host_died.notified().await;
        }
        let reaped_at = self.reap(is_alive).await;
        if !is_alive {
            return;
        }
        // What is left now is out of its reach.
        let proven = !self.world.left_work(self.host);
        let Told { claim, tickets, is_orderly } = self.world.told(self.host);
        if proven {
            self.repeats(&tickets);
        }
        let Some(ticket) = claim else { return };
        self.world.count(|counts| counts.guardian_unproven += u64::from(!proven));
        // The last note of it may be lost.
        let deadline = self.deadline.borrow().filter(|_| self.rng.u32(..8) > 0);
        let end = HostEnd { proven, orderly: is_orderly, reaped_at, deadline };
        match end.release_window(self.clock.now(), self.ttl, self.quiet_time) {
            Some(window) => self.releases(ticket, window),
            None => {
                let left_to_expire = proven && !is_orderly;
                self.world.count(|counts| counts.guardian_no_time += u64::from(left_to_expire));
            }
        }
    }

    /// Waits until no process of the host is left that the guardian can reap, and returns when.
    async fn reap(&mut self, is_alive: bool) -> Instant {
        if !self.world.left_work(self.host) {
            return self.clock.now();
        }
        self.world.count(|counts| counts.outlived += 1);
        let behind = BEHIND_DEADLINE.mul_f64(self.rng.f64());
        let latest = self.deadline.borrow().map_or(Instant::ORIGIN, |deadline| deadline.after(behind));
        let takes = Duration::from_millis(if self.rng.bool() { 400 } else { 10 }).mul_f64(self.rng.f64());
        let reaped_at = self.clock.now().after(takes).min(latest);
        if is_alive && self.rng.u32(..4) == 0 {
            // A process that is no child, in a control group that is not empty: it ends at the deadline.
            let (world, host, ends) = (Arc::clone(&self.world), self.host, self.clock.sleep_until(latest));
            let straggles = async move {
                ends.await;
                world.ends_rest(host);
            };
            self.world.spawn(Process::WORLD, "straggler", Box::pin(straggles));
            self.clock.sleep_until(reaped_at).await;
        } else {
            self.clock.sleep_until(reaped_at).await;
            self.world.ends_rest(self.host);
        }
        self.clock.now()
    }

    /// Runs the release in a process that ends with the guardian, and at the end of its window.
    fn releases(&mut self, ticket: LeftBehind, (from, until): (Instant, Instant)) {
        let starts_in = Duration::from_secs(1).mul_f64(self.rng.f64() * self.rng.f64());
        let (clock, world) = (self.clock.clone(), Arc::clone(&self.world));
        let (id, release) = (self.host.release(false), self.release(ticket, false));
        let stage = async move {
            clock.sleep_until(from).await;
            let released = async {
                clock.sleep(starts_in).await;
                release.await;
            };
            tokio::select! {
                biased;
                () = released => {}
                () = clock.sleep_until(until) => world.count(|counts| counts.guardian_cut_off += 1),
            }
        };
        self.world.spawn(id, "stage-release", Box::pin(stage));
        if self.rng.u32(..6) == 0 {
            let dies_in = Duration::from_secs(3).mul_f64(self.rng.f64() * self.rng.f64());
            let (world, clock) = (Arc::clone(&self.world), self.clock.clone());
            let dies = async move {
                clock.sleep_until(from).await;
                clock.sleep(dies_in).await;
                world.note(format_args!("the {id} dies with its guardian"));
                world.count(|counts| counts.guardians_died_releasing += 1);
                world.state().signals.push(Signal::Crash(id));
            };
            self.world.spawn(Process::WORLD, "death of a guardian", Box::pin(dies));
        }
    }

    /// Now and then, releases once more, late, by one of its tickets: nothing may depend on when a guardian
    /// releases, and how often.
    fn repeats(&mut self, tickets: &[LeftBehind]) {
        if self.rng.u32(..4) > 0 {
            return;
        }
        let Some(&ticket) = self.rng.choice(tickets) else { return };
        let delay = Duration::from_secs(60).mul_f64(self.rng.f64());
        let (world, release) = (Arc::clone(&self.world), self.release(ticket, true));
        let repeats = async move {
            world.clock.sleep(delay).await;
            if world.clock.now() < FAULTS_END {
                world.count(|counts| counts.guardian_repeats += 1);
                release.await;
            }
        };
        self.world.spawn(self.host.release(true), "late release", Box::pin(repeats));
    }

    fn release(&self, ticket: LeftBehind, repeated: bool) -> impl Future<Output = ()> + Send + 'static {
        let (world, id) = (Arc::clone(&self.world), self.host.release(repeated));
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        async move {
            let storage = StorageInspector::on_storage(storage_of(&world, id), NAME, clock);
            let since = storage.clock.now();
            let released = ticket.release(&storage, &end_of(ticket.epoch), since).await;
            world.note(format_args!("the {id} ends: {ticket:?}, {released:?}"));
            match released {
                Ok(true) => world.has_released(id, &ticket),
                Ok(false) => world.count(|counts| counts.guardian_refused += 1),
                Err(_) => {}
            }
        }
    }
}
