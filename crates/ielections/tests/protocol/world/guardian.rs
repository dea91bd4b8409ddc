//! The guardian of a candidate, another process: it outlives a leader that dies, and has the record released
//! once nothing of the leader works any more (I6).

use super::{
    Event, Moment, World,
    candidate::State,
    network::{HOP, Request},
};
use ielections::{Epoch, Incarnation, Timing, protocol::Won};
use std::time::Duration;

/// What a candidate has deposited with its guardian: what to release if it dies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) who: usize,
    pub(crate) at: usize,
    pub(crate) incarnation: Incarnation,
    pub(crate) epoch: Epoch,
}

impl World {
    /// Deposits the ticket of a leadership with the guardian.
    pub(super) fn deposit(&mut self, who: usize, won: &Won) {
        let (incarnation, epoch) = (won.entry.incarnation(), won.entry.epoch);
        self.candidates[who].tickets.push(Ticket { who, at: won.slot, incarnation, epoch });
    }

    /// Ends the candidate, and leaves its record to its guardian.
    pub(super) fn die(&mut self, who: usize) {
        if let State::Leading { at, term, .. } = self.candidates[who].state {
            self.guard(who, at, term);
        }
        self.end(who);
    }

    /// The leader dies now. What it has started is reaped a little later, and at its kill deadline at the
    /// latest. The last ticket may be lost, and any may be used late, and again.
    fn guard(&mut self, who: usize, at: usize, term: usize) {
        let delay = self.tape.span(Duration::from_millis(20));
        let ends = &mut self.places[at].terms[term].ends;
        *ends = (*ends).max(self.now).min(self.now + delay.as_nanos() as u64);
        let reaped_at = *ends;
        let tickets = self.candidates[who].tickets.clone();
        let Some(last) = tickets.last() else { return };
        if self.tape.chance(70) {
            self.order(reaped_at, Duration::ZERO, *last);
        }
        if self.tape.chance(50) {
            let any = tickets[self.tape.below(tickets.len())];
            let late = self.tape.span(Duration::from_millis(600));
            self.order(reaped_at, late, any);
        }
    }

    fn order(&mut self, reaped_at: Moment, late: Duration, ticket: Ticket) {
        self.put(reaped_at + (HOP + late).as_nanos() as u64, Event::Releases { ticket, tries: 3 });
    }

    /// Sends a release, and repeats it as long as its outcome is unknown.
    pub(super) fn release_by(&mut self, ticket: Ticket, tries: usize) {
        let Ticket { who, at, incarnation, epoch } = ticket;
        let timeout = Timing::of(self.candidates[who].ttl).attempt_timeout();
        let (call, answered_after) = self.depart(who, None, Request::Delete(at, incarnation, epoch), timeout);
        self.calls[call].by_guardian = true;
        if self.calls[call].failure.is_some() && tries > 1 {
            let again = self.now + (answered_after + HOP).as_nanos() as u64;
            self.put(again, Event::Releases { ticket, tries: tries - 1 });
        }
    }

    /// A release of a guardian arrives, and deletes the record or not.
    pub(super) fn judge_release(&mut self, at: usize, epoch: Epoch, deletes: bool) {
        if !deletes {
            self.counts.refused_to_guardian += 1;
            return;
        }
        self.counts.released_by_guardian += 1;
        let now = self.now;
        let works = self.places[at].terms.iter().any(|term| term.epoch == epoch && term.ends > now);
        self.check(!works, || format!("{epoch:?} is released while its leader works (I6)"));
    }
}
