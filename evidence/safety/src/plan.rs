//! Runs candidates, injects faults until the limit, and prints the result.

use crate::{
    fault::Faults,
    instance::{Instance, Setup},
    orphans::Orphans,
    verdict::{self, Remains, Successions},
};
use fastrand::Rng;
use std::{fmt, io, rc::Rc, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// The least share of the time with a leader.
const LED: f64 = 0.6;

/// The settings of a run.
pub(crate) struct Plan {
    pub(crate) setup: Rc<Setup>,
    /// How many candidates.
    pub(crate) instances: usize,
    /// The mean time between two faults.
    pub(crate) mean: Duration,
    /// How long a process may outlive its host or guardian.
    pub(crate) most: Duration,
    pub(crate) ends: Ends,
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    After(Duration),
    AfterKills(u64),
}

/// What a run has found so far.
#[derive(Default)]
struct Seen {
    faults: Faults,
    orphans: Orphans,
    remains: Remains,
}

impl Plan {
    /// Prints the result. Returns the number of violations.
    pub(crate) fn run(&self, rng: &mut Rng) -> io::Result<usize> {
        let Setup { programs, folder, ttl, .. } = &*self.setup;
        let began = SystemClock::read();
        let mut seen = Seen::default();
        let instances = self.inject_faults(&mut seen, began, rng)?;
        let ended = SystemClock::read();
        let Seen { mut faults, orphans, mut remains } = seen;
        for instance in instances {
            // The last fault may have ended it: the processes that it leaves are checked, too.
            if let Some(end) = instance.end(|instance| faults.kills_guardian_of(instance))? {
                remains.of(end, SystemClock::read(), *ttl, &faults.excused);
            }
            remains.look(SystemClock::read(), self.most);
        }
        remains.at_the_end(folder, *ttl, self.most);
        let took = began.until(ended).as_secs();
        println!("{faults}, in {took} s");
        let spans = verdict::read(folder)?;
        println!("{}", Successions::of(&faults.leader_kills, &spans, *ttl));
        let mut verdict = verdict::judge(spans, began, ended, LED);
        if programs.len() > 1 {
            verdict.check_turns(programs);
        }
        verdict.violations.extend(orphans.violations);
        verdict.violations.extend(remains.violations);
        println!(
            "workers and their background processes outlived their host by at most {:.1} ms ({} seen), \
             their guardian by {:.1} ms",
            orphans.longest.as_secs_f64() * 1e3,
            orphans.seen,
            remains.longest.as_secs_f64() * 1e3
        );
        println!(
            "guardian and host or keeper killed, or one while the other was stopped: {}; \
             {} of them left {} background processes",
            remains.excused, remains.left_a_process, remains.left
        );
        println!("{verdict}");
        Ok(verdict.violations.len())
    }

    fn inject_faults(&self, seen: &mut Seen, began: Instant, rng: &mut Rng) -> io::Result<Vec<Instance>> {
        let Seen { faults, orphans, remains } = seen;
        let mut instances = (0..self.instances)
            .map(|number| Instance::start(&self.setup, number))
            .collect::<io::Result<Vec<_>>>()?;
        let mut next_fault = began;
        while !self.ends.has_come(began, faults) {
            let now = SystemClock::read();
            for instance in &mut instances {
                if let Some(ended) = instance.restart_if_due(now, rng)? {
                    remains.of(ended, now, self.setup.ttl, &faults.excused);
                }
            }
            orphans.look(now, &self.setup.folder, self.most, &faults.excused)?;
            remains.look(now, self.most);
            faults.resume_due(now);
            if now >= next_fault {
                faults.inject(now, &mut instances, rng);
                next_fault = now.after(self.mean.mul_f64(2.0 * rng.f64()));
            }
            // Between two looks: short enough to measure how long an orphan lives.
            SystemClock::block_for(Duration::from_millis(3));
        }
        faults.resume_all();
        Ok(instances)
    }
}

impl Ends {
    fn has_come(self, began: Instant, faults: &Faults) -> bool {
        match self {
            Self::After(duration) => SystemClock::read() >= began.after(duration),
            Self::AfterKills(kills) => faults.kills() >= kills,
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(duration) => write!(out, "{} s", duration.as_secs()),
            Self::AfterKills(kills) => write!(out, "{kills} kills"),
        }
    }
}
