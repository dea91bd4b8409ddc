//! The observer: what it knows is true time, who works, and what was sent and applied. Its constants are its own,
//! written down a second time on purpose.

use crate::{
    process::Process,
    world::{Assumption, Settings, World},
};
use ielections::{Entry, Epoch, Incarnation, Version};
use std::{fmt, time::Duration};
use vvm_clock::Instant;

/// Thousandths of a TTL, from the send of the last confirmed write, after which a leader is dead.
const KILL: u64 = 800;

/// The span within which a healthy storage has a leader again: three TTLs of the slowest clock.
const HEALED_WITHIN: u64 = 3;

/// A write as its process sent it.
#[derive(Clone, Hash)]
pub(crate) struct Sent {
    pub(crate) version: Version,
    /// On the clock of the process.
    pub(crate) at: Instant,
    pub(crate) applied: bool,
}

/// A broken invariant, and how.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn of(invariant: &'static str, what: impl Into<String>) -> Self {
        Self { invariant, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.invariant, self.what)
    }
}

impl Process {
    /// A write that the process takes for confirmed was applied, and counts from its own send (I3, I7).
    pub(crate) fn confirmed(
        &mut self,
        entry: &Entry,
        sent_at: Instant,
        kill_at: Instant,
        settings: &Settings,
    ) -> Result<(), Violation> {
        let own = self.sent.iter().find(|sent| sent.version == entry.version).cloned();
        match own {
            Some(own) if !own.applied && settings.observes("I7") => {
                return Err(Violation::of(
                    "I7",
                    format!("{} confirms a write that was not applied", self.name),
                ));
            }
            None if settings.observes("I7") => {
                return Err(Violation::of(
                    "I7",
                    format!("{} confirms a write that it never sent", self.name),
                ));
            }
            Some(own) => {
                let share = settings.kill_share.unwrap_or(KILL);
                let dead_by = own.at.after(share_of(entry.ttl.get(), share));
                if settings.observes("I3") && (sent_at > own.at || kill_at > dead_by) {
                    let late = own.at.until(sent_at.max(kill_at.before(share_of(entry.ttl.get(), share))));
                    return Err(Violation::of(
                        "I3",
                        format!("{} counts from {late:?} after the send", self.name),
                    ));
                }
                self.sent.retain(|sent| sent.version.incarnation == own.version.incarnation);
                self.sent.retain(|sent| sent.version.write >= own.version.write);
            }
            None => {}
        }
        Ok(())
    }

    /// Whether it can act as leader now.
    pub(crate) fn works(&self, settings: &Settings) -> bool {
        let works = |kill_at| self.clock < kill_at || settings.drops(Assumption::Deadman);
        self.works_on || self.leading().is_some_and(|leading| !leading.is_ending && works(leading.kill_at))
    }
}

pub(crate) fn share_of(ttl: Duration, thousandths: u64) -> Duration {
    Duration::from_nanos(ttl.as_nanos() as u64 * thousandths / 1000)
}

impl World {
    /// Never two at work at once (I1).
    pub(crate) fn observe(&self, settings: &Settings) -> Result<(), Violation> {
        let is_excused = self.is_foreign && !settings.drops(Assumption::Record);
        let working: Vec<_> = self.processes.iter().filter(|process| process.works(settings)).collect();
        match working[..] {
            [one, other, ..] if !is_excused && settings.observes("I1") => {
                Err(Violation::of("I1", format!("{} and {} both work", one.name, other.name)))
            }
            _ => Ok(()),
        }
    }

    /// A claim was applied: its epoch exceeds all before it (I2).
    pub(crate) fn claimed(&mut self, to: &Entry, settings: &Settings) -> Result<(), Violation> {
        let last = self.last_claim.replace((to.epoch, to.incarnation()));
        if settings.observes("I2") && last.is_some_and(|(epoch, _)| to.epoch <= epoch) {
            return Err(Violation::of("I2", format!("{:?} is claimed after {:?}", to.epoch, last)));
        }
        Ok(())
    }

    /// A write under a leadership was applied: none was acquired after it (I2).
    pub(crate) fn landed(
        &self,
        epoch: Epoch,
        incarnation: Incarnation,
        settings: &Settings,
    ) -> Result<(), Violation> {
        if settings.observes("I2") && self.last_claim.is_some_and(|last| last != (epoch, incarnation)) {
            return Err(Violation::of(
                "I2",
                format!("a write of {epoch:?} lands after the next acquisition"),
            ));
        }
        Ok(())
    }

    /// Heals everything, lets all run fairly, and expects a leader in time.
    pub(crate) fn recovers(mut self, settings: &Settings) -> Result<(), Violation> {
        self.heal();
        let slowest = self.processes.iter().map(|process| process.rate).min().unwrap_or(10);
        let ttl = self.processes.iter().map(|process| process.ttl.get()).max().unwrap_or_default();
        let within = ttl.as_nanos() as u64 * HEALED_WITHIN * 10 / slowest;
        let until = self.now + within;
        let leads = |process: &Process| process.leading().is_some_and(|leading| !leading.is_lost);
        let mut notes = crate::world::Notes::default();
        while !self.processes.iter().any(leads) {
            let Some(next) = self.events(settings).into_iter().next() else {
                return Err(Violation::of("progress", "nothing happens any more after the faults"));
            };
            self.happen(next, settings, &mut notes)?;
            if self.now > until {
                return Err(Violation::of("progress", "no leader within 3 TTL after the faults"));
            }
        }
        Ok(())
    }
}
