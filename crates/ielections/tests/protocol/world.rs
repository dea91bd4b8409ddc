//! [`World`]: candidates with their own clocks, slots in one storage, and a network with faults. Discrete
//! events without real time. All random choices are on one [`Tape`].
//!
//! Every step is checked against the true times of calls and the true end of each leader's work.

mod candidate;
mod network;

use crate::tape::Tape;
use candidate::Ticket;
use candidate::{Candidate, State};
use ielections::{Incarnation, Ttl, Version};
use network::Call;
use network::Place;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use vvm_clock::Instant;

/// True time in nanoseconds. No candidate can read it.
pub(crate) type Moment = u64;

const BEGAN: Moment = 1_000_000_000_000;
/// The durations of the run with faults, and of the run without faults after that.
const TROUBLED: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(3);

/// An event of a candidate. Without effect if the candidate has restarted since it was scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    Woken {
        timer: u64,
    },
    /// A hint that a slot may have changed, whether it has or not.
    Hinted {
        more: usize,
    },
    MaySend,
    Answered {
        call: usize,
    },
    Withdrawn {
        run: usize,
    },
    WorkStops,
    Crashes,
    /// The deadline of the deadman, set for this moment.
    Killed {
        at: Moment,
    },
    Starts,
}

/// An event of a candidate, the arrival of a call at the storage, or a release.
#[derive(Clone, Copy, Debug)]
enum Event {
    To {
        who: usize,
        life: u64,
        what: Happening,
    },
    Lands {
        call: usize,
    },
    /// A guardian releases.
    Releases {
        ticket: Ticket,
        tries: usize,
    },
}

/// The attempts of one campaign, and the records that it may have left.
#[derive(Debug, Default)]
pub(crate) struct Run {
    attempts: Vec<(usize, Version)>,
    incarnations: BTreeSet<Incarnation>,
    /// After its end: the incarnations that it may have left. `None` after a crash.
    left: Option<BTreeSet<Incarnation>>,
}

/// How often each fault took effect.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) won: u64,
    pub(crate) taken_over: u64,
    pub(crate) renewed: u64,
    pub(crate) lost: u64,
    pub(crate) killed: u64,
    pub(crate) landed_late: u64,
    pub(crate) own_renewed: u64,
    pub(crate) abandoned: u64,
    pub(crate) hinted: u64,
    pub(crate) released_by_guardian: u64,
    pub(crate) refused_to_guardian: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.won += other.won;
        self.taken_over += other.taken_over;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.killed += other.killed;
        self.landed_late += other.landed_late;
        self.own_renewed += other.own_renewed;
        self.abandoned += other.abandoned;
        self.hinted += other.hinted;
        self.released_by_guardian += other.released_by_guardian;
        self.refused_to_guardian += other.refused_to_guardian;
    }
}

pub(crate) struct World {
    now: Moment,
    tape: Tape,
    events: BTreeMap<(Moment, u64), Event>,
    scheduled: u64,
    places: Vec<Place>,
    candidates: Vec<Candidate>,
    calls: Vec<Call>,
    runs: Vec<Run>,
    issued: BTreeMap<(Incarnation, u64), Moment>,
    broken: Option<String>,
    pub(crate) counts: Counts,
}

impl World {
    /// A world with several candidates and slots.
    pub(crate) fn begin(mut tape: Tape) -> Self {
        let places = (0..1 + tape.below(3)).map(|_| Place::default()).collect();
        let candidates: Vec<Candidate> =
            (0..2 + tape.below(3)).map(|who| Candidate::new(who, &mut tape)).collect();
        let mut world = Self {
            now: BEGAN,
            tape,
            events: BTreeMap::new(),
            scheduled: 0,
            places,
            candidates,
            calls: Vec::new(),
            runs: Vec::new(),
            issued: BTreeMap::new(),
            broken: None,
            counts: Counts::default(),
        };
        for who in 0..world.candidates.len() {
            world.schedule(who, Duration::ZERO, Happening::Starts);
        }
        world
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(mut self) -> Result<Counts, String> {
        let ends = BEGAN + (TROUBLED + CALM).as_nanos() as u64;
        let mut steps = 0;
        while let Some(((at, _), event)) = self.events.pop_first()
            && at < ends
        {
            // Four candidates that read every millisecond for five seconds make 20,000 scans of three events.
            steps += 1;
            self.check(steps < 400_000, || "steps without end".into());
            self.now = at;
            match event {
                Event::Lands { call } => self.lands(call),
                Event::Releases { ticket, tries } => self.release_by(ticket, tries),
                Event::To { who, life, what } if self.candidates[who].life == life => {
                    let stalled_until = self.candidates[who].stalled_until;
                    if stalled_until > at && !matches!(what, Happening::Killed { .. }) {
                        self.schedule_at(who, stalled_until, what);
                    } else {
                        self.happens(who, what);
                    }
                }
                Event::To { .. } => {}
            }
            if let Some(broken) = self.broken {
                return Err(broken);
            }
        }
        self.now = ends;
        let leaders = self.candidates.iter().filter(|one| matches!(one.state, State::Leading { .. })).count();
        let possible = self.places.len().min(self.candidates.len());
        if leaders != possible {
            return Err(format!("{leaders} of {possible} slots are led long after the last fault"));
        }
        Ok(self.counts)
    }

    fn is_calm(&self) -> bool {
        self.now >= BEGAN + TROUBLED.as_nanos() as u64
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(format!("{}: {}", self.now - BEGAN, what()));
        }
    }

    fn schedule(&mut self, who: usize, delay: Duration, what: Happening) {
        self.schedule_at(who, self.now + delay.as_nanos() as u64, what);
    }

    fn schedule_at(&mut self, who: usize, at: Moment, what: Happening) {
        let life = self.candidates[who].life;
        self.put(at, Event::To { who, life, what });
    }

    fn put(&mut self, at: Moment, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    /// The candidate's clock now.
    fn local(&self, who: usize) -> Instant {
        self.candidates[who].clock.shows(self.now)
    }

    /// How much time has passed on the candidate's clock since then.
    fn local_since(&self, who: usize, earlier: Moment) -> Duration {
        self.local(who).since(self.candidates[who].clock.shows(earlier))
    }
}

/// The clock of a candidate. I1 allows each clock its own rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drifting {
    parts_per_million: u64,
    /// What it showed at `BEGAN`.
    showed: u64,
}

impl Drifting {
    fn new(tape: &mut Tape) -> Self {
        let parts_per_million = [1_000_000, 900_000, 1_100_000][tape.below(3)];
        Self { parts_per_million, showed: 1_000_000_000 * (1 + tape.below(1000)) as u64 }
    }

    fn shows(self, moment: Moment) -> Instant {
        let passed = u128::from(moment - BEGAN) * u128::from(self.parts_per_million) / 1_000_000;
        Instant::from_nanos(self.showed + passed as u64)
    }

    /// The first moment at which it shows `reading`.
    fn when(self, reading: Instant) -> Moment {
        let wait = u128::from(reading.as_nanos().saturating_sub(self.showed)) * 1_000_000;
        BEGAN + wait.div_ceil(u128::from(self.parts_per_million)) as u64
    }

    fn span(self, local: Duration) -> Duration {
        local.mul_f64(1_000_000.0 / self.parts_per_million as f64)
    }
}

/// TTLs differ, to catch an observer that waits for its own TTL.
const TTLS: [Ttl; 3] = [ttl(100), ttl(150), ttl(300)];

const fn ttl(milliseconds: u64) -> Ttl {
    match Ttl::new(Duration::from_millis(milliseconds)) {
        Ok(ttl) => ttl,
        Err(_) => panic!("no TTL"),
    }
}
