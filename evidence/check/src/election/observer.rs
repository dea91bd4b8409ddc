//! The observer: it knows true time, who works, and what was sent and applied. Its constants are its own on purpose.

use super::{
    process::Process,
    settings::{Context, Surroundings, share_of},
    world::World,
};
use crate::{Assumption, search::Notes};
use ielections::{Entry, Epoch, Incarnation, Version};
use std::time::Duration;
use vvm_clock::Instant;

/// Thousandths of a TTL, from the send of the last confirmed write, after which a leader is dead.
const KILL: u64 = 800;

/// The span within which a healthy storage has a leader again: three TTLs of the slowest clock.
const HEALED_WITHIN: u32 = 3;

impl Process {
    /// A write that the process takes for confirmed was applied, and counts from its own send (I3, I7).
    pub(crate) fn confirmed(
        &mut self,
        entry: &Entry,
        sent_at: Instant,
        kill_at: Instant,
        cx: &mut Context<'_>,
    ) {
        let own = self.sent.iter().find(|sent| sent.version == entry.version).cloned();
        let Some(own) = own.filter(|own| own.applied) else {
            return cx.violated("I7", || format!("{} confirms a write that was not applied", self.name));
        };
        let dead_by = own.at.after(share_of(
            entry.ttl,
            cx.around.settings.kill_share.filter(|_| !cx.around.succeeds).unwrap_or(KILL),
        ));
        let late = own.at.until(sent_at).max(dead_by.until(kill_at));
        if !late.is_zero() {
            cx.violated("I3", || format!("{} is killed {late:?} too late", self.name));
        }
        let Version { incarnation, write } = own.version;
        self.sent.retain(|sent| sent.version.incarnation == incarnation && sent.version.write >= write);
    }

    /// A record that it takes for another's is none that it wrote itself (I7).
    pub(crate) fn knows_its_own(&self, others: &Entry, cx: &mut Context<'_>) {
        if self.sent.iter().any(|sent| sent.version == others.version) {
            cx.violated("I7", || format!("{} takes its own record for another's", self.name));
        }
    }

    /// Whether it can act as leader now.
    fn works(&self, around: &Surroundings) -> bool {
        let works = |kill_at| self.clock < kill_at || around.drops(Assumption::Deadman);
        self.works_on || self.leading().is_some_and(|leading| !leading.is_ending && works(leading.dead_at()))
    }
}

impl World {
    /// Never two at work at once (I1).
    pub(crate) fn observe(&self, cx: &mut Context<'_>) {
        let is_excused = self.is_foreign && self.cells.is_none() && !cx.around.drops(Assumption::Record);
        let mut working = self.processes.iter().filter(|process| process.works(cx.around));
        if let (Some(one), Some(other), false) = (working.next(), working.next(), is_excused) {
            cx.violated("I1", || format!("{} and {} both work", one.name, other.name));
        }
    }

    /// A claim was applied: its epoch exceeds all before it (I2).
    pub(crate) fn claimed(&mut self, to: &Entry, cx: &mut Context<'_>) {
        match self.last_claim.replace((to.epoch, to.incarnation())) {
            Some((last, _)) if to.epoch <= last => {
                cx.violated("I2", || format!("{:?} is claimed after {last:?}", to.epoch));
            }
            _ => {}
        }
    }

    /// A write under a leadership was applied: none was acquired after it (I2).
    pub(crate) fn landed(&self, epoch: Epoch, incarnation: Incarnation, cx: &mut Context<'_>) {
        if self.last_claim.is_some_and(|last| last != (epoch, incarnation)) {
            cx.violated("I2", || format!("a write of {epoch:?} lands after the next acquisition"));
        }
    }

    /// Heals everything, lets all run fairly, and returns whether there is a leader in time.
    pub(super) fn has_a_leader_when_healed(mut self) -> bool {
        self.heal();
        let ttl = self.processes.iter().map(|process| process.ttl.get()).max().unwrap_or_default();
        self.has_a_leader_within(ttl * HEALED_WITHIN)
    }

    /// Runs fairly, and returns whether there is a leader within a span of the slowest clock.
    pub(super) fn has_a_leader_within(mut self, span: Duration) -> bool {
        let slowest = self.processes.iter().map(|process| process.rate).min().unwrap_or(10);
        let until = self.now + span.as_nanos() as u64 * 10 / slowest;
        let leads = |process: &Process| process.leading().is_some_and(|leading| !leading.is_lost);
        while !self.processes.iter().any(leads) {
            match self.possible().first() {
                Some(next) if self.now <= until => self.occur(*next, &mut Notes::default()),
                _ => return false,
            }
        }
        true
    }
}
