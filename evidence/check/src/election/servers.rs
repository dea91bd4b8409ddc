//! [`Servers`]: a model of a PostgreSQL database that is replicated without waiting, and of its adoption: three servers with a
//! row of `history` and a row of the slot each, of which standbys lag and are promoted.

use super::{message::hash_slot, settings::Surroundings};
use crate::Assumption;
use ielections::{Entropy as _, Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::{
    hash::{Hash, Hasher},
    time::Duration,
};
use vvm_storage::{Step, testing::fail_over::EPOCHS_OF_A_FAIL_OVER};

/// Milliseconds of the candidates' wall clocks. They stand still, and any date will do.
const CANDIDATES: u64 = 100 * DAY;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// The servers' clocks, as far behind as the rules of `docs/storages/postgres.md` permit: half a day behind that of the first
/// primary, which a candidate's may be ahead of by half a day.
const SERVERS: u64 = CANDIDATES - DAY + 1;

pub(super) const WALL: Duration = Duration::from_millis(CANDIDATES);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct History {
    pub(super) timeline: u64,
    pub(super) witness: u64,
    pub(super) adopted: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Server {
    pub(super) timeline: u64,
    pub(super) history: History,
    /// Never led: there is no row.
    pub(super) slot: Slot,
    pub(super) accepts_writes: bool,
}

#[derive(Clone, Hash, Debug)]
pub(super) struct Handle {
    pub(super) server: usize,
    pub(super) witness: Option<u64>,
}

#[derive(Clone, Hash, Debug)]
pub(super) struct Servers {
    pub(super) servers: [Server; 3],
    pub(super) primary: usize,
    pub(super) handles: [Handle; 3],
    /// The histories that the late writes of the world name.
    pub(super) late: Vec<Option<u64>>,
    /// How many witnesses there are besides the first.
    witnesses: u64,
    promotions: u64,
    /// The state of the primary is new. Standbys copy it now or never: later would come to the same.
    is_new: bool,
    /// The largest TTL of all candidates.
    max_ttl: Ttl,
}

impl Server {
    /// Whether its row of `history` names it: no candidate has to adopt it.
    pub(super) fn is_adopted(&self) -> bool {
        self.history.timeline == self.timeline
    }

    /// The witness that a handle learns.
    fn shown(&self) -> Option<u64> {
        self.is_adopted().then_some(self.history.witness)
    }

    /// A model of the condition that each write states beside that of its step: it names the history of the server.
    pub(super) fn admits(&self, step: &Step, witness: u64, around: &Surroundings) -> bool {
        let is_compared = !around.drops(Assumption::Compared);
        let has_history = self.history.witness == witness && (self.is_adopted() || !is_compared);
        has_history && !(vvm_storage::testing::fail_over::is_insertion(step) && self.history.adopted)
    }
}

impl Servers {
    pub(super) fn new(max_ttl: Ttl) -> Self {
        let history = History { timeline: 1, witness: 0, adopted: false };
        let slot = Slot::Vacant(Vacant::default());
        let server =
            |number| Server { timeline: 1, history, slot: slot.clone(), accepts_writes: number == 0 };
        Self {
            servers: [0, 1, 2].map(server),
            primary: 0,
            handles: [(); 3].map(|()| Handle { server: 0, witness: Some(0) }),
            late: Vec::new(),
            witnesses: 0,
            promotions: 0,
            is_new: false,
            max_ttl,
        }
    }

    /// The standbys, without those that are like another one.
    pub(super) fn standbys(&self) -> impl Iterator<Item = usize> {
        let is_new = |number: usize| {
            let server = &self.servers[number];
            !server.accepts_writes && !self.servers[..number].contains(server)
        };
        (0..self.servers.len()).filter(move |number| is_new(*number))
    }

    /// Notes whether the last event changed the primary, which was so before.
    pub(super) fn note_change(&mut self, before: Option<&Server>) {
        self.is_new = before.is_some_and(|before| *before != self.servers[self.primary]);
    }

    /// Whether a standby differs from the primary, and may copy it. One that is ahead, such as a former primary, is rewound.
    pub(super) fn lags(&self, standby: usize) -> bool {
        let (copy, primary) = (&self.servers[standby], &self.servers[self.primary]);
        self.is_new
            && (copy.timeline, copy.history, &copy.slot) != (primary.timeline, primary.history, &primary.slot)
    }

    pub(super) fn replicate(&mut self, standby: usize) {
        self.servers[standby] = Server { accepts_writes: false, ..self.servers[self.primary].clone() };
    }

    /// Promotes a standby with what it has. Returns what is forgotten by it.
    pub(super) fn promote(&mut self, standby: usize, around: &Surroundings) -> Vec<&'static str> {
        let (before, now) = (&self.servers[self.primary], &self.servers[standby]);
        let mut forgotten = vec![match (before.slot.entry(), now.slot.entry()) {
            _ if before.slot == now.slot => "a fail-over that lost nothing",
            (Some(before), Some(now)) if before.incarnation() == now.incarnation() => {
                "a fail-over that lost a renewal"
            }
            (Some(_), _) => "a fail-over that lost a claim",
            (None, _) => "a fail-over that lost a release",
        }];
        if before.timeline > now.timeline {
            forgotten.push("two promotions of one timeline");
        }
        self.servers[self.primary].accepts_writes &= around.drops(Assumption::Stopped);
        let now = &mut self.servers[standby];
        now.accepts_writes = true;
        now.timeline += 1;
        self.primary = standby;
        self.promotions += 1;
        forgotten
    }

    pub(super) fn connect(&mut self, handle: usize) -> usize {
        let handle = &mut self.handles[handle];
        if !self.servers[handle.server].accepts_writes {
            handle.server = self.primary;
        }
        handle.server
    }

    pub(super) fn open(&mut self, handle: usize) {
        let server = self.primary;
        self.handles[handle] = Handle { server, witness: self.servers[server].shown() };
    }

    pub(super) fn is_ours(&self, handle: usize, server: usize) -> bool {
        let (ours, shown) = (self.handles[handle].witness, self.servers[server].shown());
        ours.is_some() && ours == shown
    }

    /// A model of the statements of `rows::adoption`: the first candidate makes the history of the server its own, and
    /// whatever was known of a slot that has a row is no longer. `has_key`: the slot gets a row if it has none. Returns
    /// what happened, if anything did.
    pub(super) fn adopt(
        &mut self,
        handle: usize,
        has_key: bool,
        around: &Surroundings,
    ) -> Option<&'static str> {
        let number = self.handles[handle].server;
        // All servers have the same clock, and a second passes between two promotions.
        let millis = SERVERS + 1000 * self.promotions;
        let max_ttl = self.max_ttl;
        let server = &mut self.servers[number];
        let first = millis + server.timeline * EPOCHS_OF_A_FAIL_OVER;
        let changed = !server.is_adopted();
        let last = server.slot.last_epoch().map(Epoch::get);
        if changed {
            self.witnesses += 1;
            server.history = History { timeline: server.timeline, witness: self.witnesses, adopted: true };
        }
        self.handles[handle].witness = server.shown();
        let epoch = match last {
            Some(last) if changed => first.max(last + 1),
            None if has_key && server.history.adopted => first,
            _ => return changed.then_some("an adoption of slots without a row"),
        };
        let epoch = if around.drops(Assumption::Raised) { last.unwrap_or(1) } else { epoch };
        server.slot = adopted(Epoch::new(epoch).ok()?, max_ttl, around)?;
        Some(if changed { "an adoption" } else { "a slot without a row is adopted" })
    }
}

/// A slot that was adopted: held for the largest TTL, by a record that nothing leads.
fn adopted(epoch: Epoch, max_ttl: Ttl, around: &Surroundings) -> Option<Slot> {
    if around.drops(Assumption::Waits) {
        return Some(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
    }
    let mut random = [0; 16];
    around.fill(&mut random);
    let version = Version { incarnation: Incarnation::from_bytes(random), write: 0 };
    let holder = Holder::new("none: waiting after a fail-over").ok()?;
    Some(Slot::Held { entry: Entry { holder, version, ttl: max_ttl, epoch }, proven_age: None })
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (self.timeline, self.history, self.accepts_writes).hash(to);
        hash_slot(&self.slot, to);
    }
}
