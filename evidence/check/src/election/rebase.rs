//! States that differ only in names are one: instants count from now; incarnations, writes and epochs are renumbered.

use super::{
    event::What,
    process::{Answer, Kind, Request, hash_slot},
    world::World,
};
use ielections::{Epoch, Incarnation, Slot, Version, protocol::Rebase};
use std::{
    hash::{Hash, Hasher},
    time::Duration,
};
use vvm_clock::Instant;
use vvm_storage::Step;

/// What every clock shows in a rebased state, but for less than a [`GRAIN`].
pub(crate) const NOW: Instant = Instant::from_nanos(100 * GRAIN * 1000);

/// Renewals are due at multiples of a thousandth of the TTL, so clocks are shifted by multiples of it.
const GRAIN: u64 = 9_900_000;

/// All instants before have passed, whatever counts from them: no span is longer, for a candidate that never gives up.
const PAST: Duration = Duration::from_nanos(2000 * GRAIN);

/// The names that occur, then their replacements.
#[derive(Default)]
pub(super) struct Names {
    renames: bool,
    /// How far the clock of the process at hand is shifted, and what it shows then.
    shift: Duration,
    now: Option<Instant>,
    incarnations: Vec<(Incarnation, u64)>,
    least_epoch: Option<u64>,
    keeps_writes: bool,
}

impl Rebase for Names {
    fn since(&mut self, at: &mut Instant) {
        if self.renames && *at != Instant::NEVER {
            *at = at.before(self.shift).max(self.now.unwrap_or(NOW).before(PAST));
        }
    }

    fn until(&mut self, at: &mut Instant) {
        if self.renames && *at != Instant::NEVER {
            *at = at.before(self.shift).max(self.now.unwrap_or(NOW));
        }
    }

    fn version(&mut self, version: &mut Version) {
        let known =
            self.incarnations.iter_mut().zip(1..).find(|((known, _), _)| *known == version.incarnation);
        match known {
            Some(((_, least), number)) if self.renames => {
                let mut bytes = [0; 16];
                bytes[0] = number;
                *version = Version {
                    incarnation: Incarnation::from_bytes(bytes),
                    write: version.write.saturating_sub(if self.keeps_writes { 0 } else { *least }),
                };
            }
            Some(((_, least), _)) => *least = (*least).min(version.write),
            None => self.incarnations.push((version.incarnation, version.write)),
        }
    }

    fn epoch(&mut self, epoch: &mut Epoch) {
        let least = self.least_epoch.get_or_insert(epoch.get());
        if !self.renames {
            *least = (*least).min(epoch.get());
        } else if let Ok(renamed) = Epoch::new(epoch.get() - *least + 1) {
            *epoch = renamed;
        }
    }
}

impl Names {
    fn incarnation(&mut self, incarnation: &mut Incarnation) {
        // No version is meant, so the largest write, for which none is renumbered.
        let mut version = Version { incarnation: *incarnation, write: u64::MAX };
        self.version(&mut version);
        *incarnation = version.incarnation;
    }

    fn slot(&mut self, slot: &mut Slot) {
        match slot {
            Slot::Held { entry, .. } => self.entry(entry),
            Slot::Vacant(vacant) => vacant.last_epoch.iter_mut().for_each(|epoch| self.epoch(epoch)),
        }
    }

    fn request(&mut self, request: &mut Request) {
        match request {
            Request::Write(Step::Claim { from, to }) => {
                self.slot(from);
                self.entry(to);
            }
            Request::Write(Step::Renew { from, to }) => {
                self.entry(from);
                self.entry(to);
            }
            Request::Write(Step::Release { incarnation, epoch }) => {
                self.incarnation(incarnation);
                self.epoch(epoch);
            }
            Request::Scan | Request::Get | Request::Write(_) => {}
        }
    }

    fn visit(&mut self, world: &mut World) {
        if world.servers.is_some() {
            // They are compared with dates.
            self.least_epoch = Some(1);
        }
        if world.is_foreign || world.left(What::Deleted) > 0 {
            // After a deletion epochs begin again with 1, and then records of two incarnations in one epoch are
            // ordered by their writes. So both keep their numbers.
            self.least_epoch = Some(1);
            self.keeps_writes = true;
        }
        self.slot(&mut world.slot);
        let servers = world.servers.iter_mut().flat_map(|servers| &mut servers.servers);
        servers.for_each(|server| self.slot(&mut server.slot));
        for process in &mut world.processes {
            let clock = process.clock;
            let past = NOW.until(clock).as_nanos() as u64;
            self.shift = Duration::from_nanos(past - past % GRAIN);
            let now = clock.before(self.shift);
            self.now = Some(now);
            if self.renames {
                process.clock = now;
            }
            for actor in &mut process.actors {
                self.until(&mut actor.wake_at);
                match &mut actor.kind {
                    Kind::Campaigning(campaign) => campaign.rebase(self),
                    Kind::Leading(leading) => {
                        leading.lease.rebase(self);
                        self.until(&mut leading.kill_at);
                        leading.support.iter_mut().for_each(|support| support.rebase(self));
                    }
                    Kind::Succeeding(successor) => successor.rebase(self),
                    Kind::Releasing(release) => release.rebase(self),
                }
                let Some(call) = &mut actor.call else { continue };
                self.until(&mut call.deadline);
                self.request(&mut call.request);
                if let Some(Ok(Answer(Some(slot)))) = &mut call.answer {
                    self.slot(slot);
                }
            }
            for sent in &mut process.sent {
                self.version(&mut sent.version);
                self.since(&mut sent.at);
            }
        }
        world.late.iter_mut().for_each(|request| self.request(request));
        world.late_datagrams.iter_mut().for_each(|(_, datagram)| datagram.rebase(self));
        if let Some((epoch, incarnation)) = &mut world.last_claim {
            self.epoch(epoch);
            self.incarnation(incarnation);
        }
    }
}

impl World {
    /// Shifts and renames, so that two states with the same future become equal.
    pub(super) fn rename(&mut self) {
        if self.cells.is_some() {
            // The values of cells and what handles know of them keep their names.
            return;
        }
        let mut names = Names::default();
        names.visit(self);
        names.renames = true;
        names.visit(self);
        self.incarnations = names.incarnations.len() as u64;
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        hash_slot(&self.slot, to);
        self.processes.hash(to);
        self.late.hash(to);
        (&self.left, self.faults, self.last_claim, self.is_foreign).hash(to);
        (self.last_was_placeholder, &self.cells, &self.servers, &self.late_datagrams).hash(to);
    }
}

impl Hash for Request {
    fn hash<H: Hasher>(&self, to: &mut H) {
        match self {
            Self::Scan => to.write_u8(0),
            Self::Get => to.write_u8(1),
            Self::Write(Step::Claim { from, to: entry }) => {
                to.write_u8(2);
                hash_slot(from, to);
                entry.hash(to);
            }
            Self::Write(Step::Renew { from, to: entry }) => {
                to.write_u8(3);
                (from, entry).hash(to);
            }
            Self::Write(Step::Release { incarnation, epoch }) => {
                to.write_u8(4);
                (incarnation, epoch).hash(to);
            }
            // Documents and settings are not checked.
            Self::Write(Step::Batch { .. } | Step::Settle { .. }) => to.write_u8(5),
        }
    }
}

impl Hash for Answer {
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_u8(u8::from(self.0.is_some()));
        if let Some(slot) = &self.0 {
            hash_slot(slot, to);
        }
    }
}
