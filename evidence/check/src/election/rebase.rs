//! States that differ only in names are one: instants count from now; incarnations, writes and epochs are renumbered.

use super::{
    event::What,
    message::{Answer, hash_slot},
    names::{GRAIN, NOW, Names},
    process::Kind,
    world::World,
};
use ielections::protocol::Rebase as _;
use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

impl World {
    /// Shifts and renames, so that two states with the same future become equal.
    pub(super) fn rename(&mut self) {
        if self.cells.is_some() {
            // The values of cells and what handles know of them keep their names.
            return;
        }
        let mut names = Names::default();
        visit(&mut names, self);
        names.renames = true;
        visit(&mut names, self);
        self.incarnations = names.incarnations.len() as u64;
    }
}

fn visit(names: &mut Names, world: &mut World) {
    if world.servers.is_some() {
        // They are compared with dates.
        names.least_epoch = Some(1);
    }
    if world.is_foreign || world.left(What::Deleted) > 0 {
        // After a deletion epochs begin again with 1, and then records of two incarnations in one epoch are
        // ordered by their writes. So both keep their numbers.
        names.least_epoch = Some(1);
        names.keeps_writes = true;
    }
    names.slot(&mut world.slot);
    let servers = world.servers.iter_mut().flat_map(|servers| &mut servers.servers);
    servers.for_each(|server| names.slot(&mut server.slot));
    for process in &mut world.processes {
        let clock = process.clock;
        let past = NOW.until(clock).as_nanos() as u64;
        names.shift = Duration::from_nanos(past - past % GRAIN);
        let now = clock.before(names.shift);
        names.now = Some(now);
        if names.renames {
            process.clock = now;
        }
        for actor in &mut process.actors {
            names.until(&mut actor.wake_at);
            match &mut actor.kind {
                Kind::Campaigning(campaign) => campaign.rebase(names),
                Kind::Leading(leading) => {
                    leading.lease.rebase(names);
                    names.until(&mut leading.kill_at);
                    leading.support.iter_mut().for_each(|support| support.rebase(names));
                }
                Kind::Succeeding(successor) => successor.rebase(names),
                Kind::Releasing(release) => release.rebase(names),
            }
            let Some(call) = &mut actor.call else { continue };
            names.until(&mut call.deadline);
            names.request(&mut call.request);
            if let Some(Ok(Answer(Some(slot)))) = &mut call.answer {
                names.slot(slot);
            }
        }
        for sent in &mut process.sent {
            names.version(&mut sent.version);
            names.since(&mut sent.at);
        }
    }
    world.late.iter_mut().for_each(|request| names.request(request));
    world.late_datagrams.iter_mut().for_each(|(_, datagram)| names.datagram(datagram));
    if let Some((epoch, incarnation)) = &mut world.last_claim {
        names.epoch(epoch);
        names.incarnation(incarnation);
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
