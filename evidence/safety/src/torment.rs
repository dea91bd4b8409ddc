//! Candidates, and trouble for them until it is enough; then what came of it.

use crate::{
    instance::Instance, orphans::Orphans, remains::Remains, succession::Successions, trouble::Troubles,
    verdict,
};
use fastrand::Rng;
use std::{fmt, io, path::Path, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// The least share of the time that somebody must lead.
const LED: f64 = 0.6;

/// What is done.
pub(crate) struct Plan<'a> {
    pub(crate) vvm: &'a Path,
    /// For the storage, and what the workers write.
    pub(crate) folder: &'a Path,
    /// How many candidates.
    pub(crate) instances: usize,
    pub(crate) ttl: Duration,
    /// Between two troubles.
    pub(crate) mean: Duration,
    /// How long anybody may outlive who must not be outlived.
    pub(crate) most: Duration,
    pub(crate) ends: Ends,
}

/// When it is enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    After(Duration),
    AfterKills(u64),
}

/// What was seen on the way.
#[derive(Default)]
struct Seen {
    troubles: Troubles,
    orphans: Orphans,
    remains: Remains,
}

impl Plan<'_> {
    /// Prints what came of it; how many violations there were.
    pub(crate) fn run(&self, rng: &mut Rng) -> io::Result<usize> {
        let began = SystemClock::read();
        let mut seen = Seen::default();
        let instances = self.torment(&mut seen, began, rng)?;
        let ended = SystemClock::read();
        let Seen { mut troubles, orphans, mut remains } = seen;
        for instance in instances {
            // The last trouble may have been its end, which nobody has noticed yet: what it leaves is judged
            // like any other's.
            if let Some(end) = instance.end(|instance| troubles.kills_guardian_of(instance))? {
                remains.of(end, SystemClock::read(), self.ttl, &troubles.excused);
            }
            remains.look(SystemClock::read(), self.most);
        }
        remains.at_the_end(self.folder, self.ttl, self.most);
        let took = began.until(ended).as_secs();
        println!("{troubles}, in {took} s");
        let spells = verdict::read(self.folder)?;
        println!("{}", Successions::of(&troubles.blows, &spells));
        let mut verdict = verdict::judge(spells, began, ended, LED);
        verdict.violations.extend(orphans.violations);
        verdict.violations.extend(remains.violations);
        println!(
            "workers and their background outlived their host by at most {:?} ({} seen), their guardian by {:?}",
            orphans.longest, orphans.seen, remains.longest
        );
        println!(
            "guardian and host both killed, or one while the other was stopped: {}; {} of them left {} in the background",
            remains.excused, remains.left_somebody, remains.left
        );
        println!("{verdict}");
        Ok(verdict.violations.len())
    }

    fn torment(&self, seen: &mut Seen, began: Instant, rng: &mut Rng) -> io::Result<Vec<Instance>> {
        let Seen { troubles, orphans, remains } = seen;
        let mut instances = (0..self.instances)
            .map(|number| Instance::start(self.vvm, self.folder, number, self.ttl))
            .collect::<io::Result<Vec<_>>>()?;
        let mut next_trouble = began;
        while !self.ends.has_come(began, troubles) {
            let now = SystemClock::read();
            for instance in &mut instances {
                if let Some(ended) = instance.restart_if_due(now, rng)? {
                    remains.of(ended, now, self.ttl, &troubles.excused);
                }
            }
            orphans.look(now, self.folder, self.most, &troubles.excused)?;
            remains.look(now, self.most);
            troubles.resume_due(now);
            if now >= next_trouble {
                troubles.make(now, &mut instances, rng);
                next_trouble = now.after(self.mean.mul_f64(2.0 * rng.f64()));
            }
            // The pace of looking, not a way to wait for anything: fine enough to time an orphan's life.
            SystemClock::block_for(Duration::from_millis(3));
        }
        troubles.resume_all();
        Ok(instances)
    }
}

impl Ends {
    fn has_come(self, began: Instant, troubles: &Troubles) -> bool {
        match self {
            Self::After(duration) => SystemClock::read() >= began.after(duration),
            Self::AfterKills(kills) => troubles.kills() >= kills,
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
