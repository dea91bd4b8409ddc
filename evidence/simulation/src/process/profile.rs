//! [`ProcessProfile`]: the properties of one process, drawn from the seed.

use crate::clock::{Drift, SimClock};
use fastrand::Rng;
use ielections::Ttl;
use std::{num::NonZeroU32, time::Duration};
use testing_time::MockClock;
use vvm_clock::{Clock as _, Instant};

#[derive(Clone, Debug)]
pub(crate) struct ProcessProfile {
    pub(crate) kind: Kind,
    pub(crate) slots: NonZeroU32,
    pub(crate) ttl: Ttl,
    pub(crate) clock: SimClock,
    /// The date on its wall clock when it starts; `None` for one that stands still in 1970.
    pub(crate) wall: Option<Duration>,
    pub(crate) service: ServiceProfile,
    pub(crate) seed: u64,
}

/// Which program a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One VVM, which ends with its leadership.
    Vvm,
    /// A host, which campaigns again, and heeds pauses.
    Host,
    /// Several leaderships on one engine.
    Many,
}

/// How its service behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceProfile {
    pub(crate) start_takes: Duration,
    pub(crate) stop_takes: Duration,
    pub(crate) fails_to_start: bool,
    pub(crate) refuses_to_stop: bool,
    pub(crate) ends_after: Option<Duration>,
    pub(crate) panics_after: Option<Duration>,
    pub(crate) writes_documents: bool,
    /// The work of a host is a command under supervision.
    pub(crate) is_command: bool,
}

/// What the world decides about a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) slots: NonZeroU32,
    pub(crate) only_hosts: bool,
    pub(crate) drift: Drift,
    pub(crate) walls: Walls,
}

/// What wall clocks show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walls {
    Anything,
    /// The date.
    Right,
    /// 1970, so that epochs only count, and repeat if the storage forgets some.
    Unset,
}

impl ProcessProfile {
    pub(crate) fn draw(rng: &mut Rng, world: &Surroundings, time: &MockClock) -> Self {
        let ttls = [Duration::from_secs(4), Duration::from_secs(10), Duration::from_secs(20)];
        let ttl = Ttl::new(ttls[rng.usize(..ttls.len())]).unwrap_or_default();
        let up_to = |rng: &mut Rng, most: u64| Duration::from_millis(rng.u64(..most));
        let one_in = |rng: &mut Rng, n: u32| rng.u32(..n) == 0;
        let service = ServiceProfile {
            start_takes: up_to(rng, 3_000),
            stop_takes: up_to(rng, 6_000),
            fails_to_start: one_in(rng, 20),
            refuses_to_stop: one_in(rng, 10),
            ends_after: one_in(rng, 10).then(|| up_to(rng, 60_000)),
            panics_after: one_in(rng, 20).then(|| up_to(rng, 60_000)),
            writes_documents: !one_in(rng, 3),
            is_command: rng.bool(),
        };
        let kind = match rng.u32(..4) {
            _ if world.only_hosts => Kind::Host,
            0 => Kind::Host,
            1 => Kind::Many,
            _ => Kind::Vvm,
        };
        let wall = match world.walls {
            Walls::Anything => Some(Duration::from_secs(rng.u64(..2_000_000_000))),
            Walls::Right => Some(Duration::from_secs(1_700_000_000) + time.now().since(Instant::ORIGIN)),
            Walls::Unset => None,
        };
        let clock = SimClock::draw(time, world.drift, rng);
        Self { kind, slots: world.slots, ttl, clock, wall, service, seed: rng.u64(..) }
    }

    /// Whether a guardian may start it: as every host that leads for one command, it leads once at a time.
    pub(crate) fn may_be_guarded(&self) -> bool {
        self.kind != Kind::Many
    }

    /// The same process with a service that starts, stops and runs as it should.
    pub(crate) fn sound(mut self) -> Self {
        self.service.fails_to_start = false;
        self.service.refuses_to_stop = false;
        self.service.ends_after = None;
        self.service.panics_after = None;
        self
    }
}
