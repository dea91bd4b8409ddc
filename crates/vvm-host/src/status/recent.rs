//! [`Recent`]: the leaderships that this process had or saw, for the picture of its page. Only for people.

use super::{
    candidate::Candidate,
    role::{Role, WhyStopping},
};
use crate::timeline::{Axis, Bar, BarKind, Mark, MarkKind, Timeline};
use ielections::Epoch;
use std::{collections::VecDeque, time::Duration};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};

const KEPT: usize = 64;

const LONGEST: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Recent {
    leaderships: VecDeque<Seen>,
    marks: VecDeque<(u32, String, MarkKind, Instant)>,
}

#[derive(Debug)]
struct Seen {
    slot: u32,
    holder: String,
    epoch: Epoch,
    first: Instant,
    last: Instant,
}

impl Recent {
    /// Records the leader of `slot`, or nothing if it is one slot too many. It leads until now if it has renewed: a
    /// dead one must not seem to lead on.
    pub(super) fn saw(&mut self, slot: u32, leader: (&str, Epoch), renewed: bool, now: Instant) {
        if self.leaderships.len() < KEPT || self.leaderships.iter().any(|seen| seen.slot == slot) {
            self.note(slot, leader, renewed, now);
        }
    }

    fn note(&mut self, slot: u32, (holder, epoch): (&str, Epoch), renewed: bool, now: Instant) {
        let latest = self.leaderships.iter_mut().rfind(|seen| seen.slot == slot);
        let is_known = latest.as_ref().is_some_and(|seen| seen.epoch >= epoch);
        if let Some(seen) = latest.filter(|seen| seen.epoch == epoch) {
            seen.last = if renewed { now } else { seen.last };
        } else if !is_known {
            if self.leaderships.iter().any(|seen| seen.slot == slot) {
                self.mark(slot, holder, MarkKind::HandOver, now);
            }
            let holder = holder.to_owned();
            self.leaderships.push_back(Seen { slot, holder, epoch, first: now, last: now });
            self.leaderships.drain(..self.leaderships.len().saturating_sub(KEPT));
        }
    }

    fn mark(&mut self, slot: u32, holder: &str, kind: MarkKind, now: Instant) {
        self.marks.push_back((slot, holder.to_owned(), kind, now));
        self.marks.drain(..self.marks.len().saturating_sub(KEPT));
    }

    /// Records the role of this process, whose name is `holder`, beside the role before.
    pub(super) fn changed(&mut self, holder: &str, (before, role): (&Role, &Role), now: Instant) {
        for leading in [before, role].into_iter().filter_map(Role::leadership) {
            self.note(leading.slot, (holder, leading.standing.epoch()), true, now);
        }
        if let Role::Stopping { leading, why } = role {
            let kind = match why {
                WhyStopping::Lost(_) => MarkKind::Loss,
                WhyStopping::GuardianDied => MarkKind::Kill,
                WhyStopping::Asked | WhyStopping::GivenUp(_) | WhyStopping::WorkEnded => MarkKind::Stop,
            };
            if !matches!(before, Role::Stopping { .. }) {
                self.mark(leading.slot, holder, kind, now);
            }
        }
    }

    /// Returns the picture of the page, for a process that began at `began` and has this `role` `now`.
    pub(super) fn timeline(
        &mut self,
        candidate: &Candidate,
        began: Instant,
        (role, now): (&Role, Instant),
    ) -> Timeline {
        let own = candidate.holder.as_str();
        // It lasts until now.
        self.changed(own, (role, role), now);
        let since_1970 = SystemWallClock.since_unix_epoch();
        let at = |moment: Instant| (since_1970 + now.until(moment)).saturating_sub(moment.until(now));
        let seen = self.leaderships.iter().map(|seen| Bar {
            slot: seen.slot,
            holder: seen.holder.clone(),
            kind: BarKind::Leads(seen.epoch.get()),
            span: at(seen.first)..at(seen.last),
        });
        let mut bars = seen.collect::<Vec<_>>();
        let mut end = now;
        if let Some(leading) = role.leadership() {
            let (renewed, dead) = (leading.standing.renewed_at(), leading.standing.kill_at());
            let over = renewed.after(candidate.ttl.get());
            for (kind, from) in [(BarKind::Ttl, renewed), (BarKind::Dead, dead)] {
                bars.push(Bar { slot: leading.slot, holder: own.into(), kind, span: at(from)..at(over) });
            }
            end = end.max(over);
        }
        let word = |kind: &MarkKind| match kind {
            MarkKind::HandOver => "leads",
            MarkKind::Loss => "lost",
            MarkKind::Kill => "its guardian died",
            MarkKind::Stop | MarkKind::Hang => "stops",
        };
        let marks = self.marks.iter().map(|(slot, holder, kind, moment)| Mark {
            slot: *slot,
            holder: holder.clone(),
            kind: *kind,
            at: at(*moment),
            text: word(kind).into(),
        });
        let began = began.max(now.before(LONGEST));
        Timeline {
            title: format!("Who led {}", candidate.name),
            note: format!("UTC, as {own} saw it, for a day at most"),
            axis: Axis::Utc,
            span: at(began)..at(end),
            bars,
            marks: marks.collect(),
        }
    }
}
