//! The storage of the world: faults of calls, and checks of I2, I5, I6, I7 and rising epochs at each applied write.

use super::World;
use crate::{
    clock::Process,
    faults::{Fate, Journey, Landing},
    records::{Backup, Outcome, Record, Records, Write},
};
use ielections::{Incarnation, Slot};
use std::time::Duration;
use vvm_clock::{Clock, Instant};

/// The keys above this are those of operators' requests, which have no leader.
pub(crate) const LAST_SLOT: u32 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    process: Process,
    at: Instant,
    /// On the sender's clock.
    at_sender: Option<Instant>,
}

impl World {
    pub(crate) fn draw_journey(&self) -> Journey {
        const FAR: Duration = Duration::from_secs(40);
        let mut state = self.state();
        let super::State { rng, rates, .. } = &mut *state;
        let mut chance = rng.u32(..1000);
        let mut within = |share: u32| {
            let hit = chance < share;
            chance = chance.saturating_sub(share);
            hit
        };
        // No further call of `within` after a hit.
        let (fate, delayed) = if within(rates.not_applied) {
            (Fate::NotApplied, false)
        } else if within(rates.request_lost) {
            (Fate::RequestLost, false)
        } else if within(rates.answer_lost) {
            (Fate::AnswerLost, false)
        } else if within(rates.unknown) {
            let landing = match rng.u32(..4) {
                0 => Landing::Never,
                1 => Landing::BeforeTheAnswer,
                // Soon, so that the writer may not have sent another one yet.
                2 => Landing::After(Duration::from_secs(2).mul_f64(rng.f64())),
                _ => Landing::After(FAR.mul_f64(rng.f64())),
            };
            (Fate::Unknown(landing), rng.u32(..4) == 0)
        } else {
            (Fate::Answered, within(rates.delayed))
        };
        let usual = |rng: &mut fastrand::Rng| rates.latency.mul_f64(rng.f64());
        let there = if delayed { FAR.mul_f64(rng.f64()) } else { usual(rng) };
        let again = (rng.u32(..1000) < rates.duplicated).then(|| FAR.mul_f64(rng.f64()));
        Journey { fate, there, back: usual(rng), again }
    }

    pub(crate) fn sent(&self, process: Process, write: &Write) -> Sent {
        let at_sender = self.clock_of(process).map(|clock| clock.peek());
        let at = self.clock.now();
        self.note(format_args!("{process} sends {write:?}"));
        match write {
            Write::Insert(_, _, entry) | Write::TakeOver(_, _, entry) => {
                self.state().claimants.insert(entry.incarnation(), process);
            }
            Write::Delete(_, incarnation, _) if self.state().in_flight.contains(incarnation) => {
                self.violated("I6", format_args!("{process} releases while a write of it is in flight"));
            }
            Write::Swap(..) | Write::Delete(..) | Write::Batch(..) => {}
        }
        Sent { process, at, at_sender }
    }

    /// A write under `incarnation` is in flight until [`Self::write_ends`].
    pub(crate) fn write_begins(&self, incarnation: Incarnation) {
        self.state().in_flight.push(incarnation);
    }

    pub(crate) fn write_ends(&self, incarnation: Incarnation) {
        let mut state = self.state();
        if let Some(place) = state.in_flight.iter().position(|other| *other == incarnation) {
            state.in_flight.swap_remove(place);
        }
    }

    pub(crate) fn apply(&self, sent: &Sent, write: &Write) -> Outcome {
        let now = self.clock.now();
        let mut state = self.state();
        let replaced = state.records.record(write.key()).cloned();
        let refused = state.records.apply(now, sent.at, write);
        if refused.is_some() {
            return refused;
        }
        if !state.processes.contains_key(&sent.process) {
            state.counts.landed_dead += 1;
        }
        match write {
            Write::Insert(_, _, entry) | Write::TakeOver(_, _, entry) | Write::Swap(_, _, entry) => {
                if now > sent.at.after(entry.ttl.get()) {
                    state.counts.late += 1;
                }
                let proven = sent.at_sender.map(|at_sender| (at_sender, entry.ttl));
                if let (Some(proven), Some(alive)) = (proven, state.processes.get_mut(&sent.process)) {
                    let best = alive.proven.entry(entry.incarnation()).or_insert(proven);
                    *best = if best.0 > proven.0 { *best } else { proven };
                }
            }
            Write::Delete(..) => state.counts.releases += 1,
            Write::Batch(..) => state.counts.batches += 1,
        }
        if matches!(write, Write::TakeOver(..)) {
            state.counts.takeovers += 1;
        }
        drop(state);
        self.note(format_args!("applied for {}: {write:?}", sent.process));
        if write.key() <= LAST_SLOT {
            self.check_applied(now, sent, write, replaced.as_ref());
        }
        None
    }

    fn check_applied(&self, now: Instant, sent: &Sent, write: &Write, replaced: Option<&Record>) {
        match (write, replaced) {
            (Write::TakeOver(key, ..), Some(replaced)) if self.promises.one_leader() => {
                self.check_take_over(now, sent, *key, replaced);
            }
            (Write::Delete(_, incarnation, _), _) => {
                let at_work = {
                    let state = self.state();
                    state.at_work().find(|(_, of, _)| of == incarnation).map(|(process, ..)| process)
                };
                if let Some(process) = at_work {
                    self.violated("I6", format_args!("the record of {process} is released while it works"));
                }
            }
            (Write::Swap(_, held, entry), _) if held.epoch != entry.epoch => {
                self.violated("rising epochs", format_args!("{write:?} changes the epoch"));
            }
            (Write::Batch(key, fence, writes), _) => {
                let mut state = self.state();
                let is_fenced = state.records.is_of_last_claim(*key, fence);
                let landed = state.ledger.lands(*key, fence.after.next(), writes);
                drop(state);
                if !is_fenced {
                    self.violated("I2", format_args!("{write:?} lands after the next claim"));
                }
                if let Err(what) = landed
                    && self.promises.storage
                {
                    self.violated("I2", format_args!("slot {key}: {what}"));
                }
            }
            _ => {}
        }
        let (rose, went_back_at) = {
            let state = self.state();
            (state.records.epoch_rose(), state.went_back_at)
        };
        let is_claim = matches!(write, Write::Insert(..) | Write::TakeOver(..));
        if is_claim && !rose && self.promises.rising_epoch(sent.at, went_back_at) {
            self.violated("rising epochs", format_args!("{write:?} does not raise the epoch"));
        }
    }

    fn check_take_over(&self, now: Instant, sent: &Sent, key: u32, replaced: &Record) {
        let (Record { entry, sent_at }, writer) = (replaced, sent.process);
        let waited_for_its_own = {
            let state = self.state();
            let is_own = state.claimants.get(&entry.incarnation()) == Some(&writer);
            is_own && !state.campaigning_again.contains(&writer)
        };
        if waited_for_its_own {
            self.violated("I7", format_args!("{writer} takes slot {key} over from itself"));
        }
        let ttl = entry.ttl;
        // After this time the TTL has passed on the fastest clock that I1 allows.
        let least = ttl.get().mul_f64(1.0 / 1.1);
        let stood = now.since(*sent_at);
        if stood + Duration::from_micros(1) < least {
            let mut state = self.state();
            if state.peers.may_claim(writer, entry, sent.at) {
                state.counts.claims_by_right += 1;
                return;
            }
            drop(state);
            self.violated("I5", format_args!("slot {key} taken over after {stood:?}, TTL {ttl}"));
        }
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Records, Instant) -> T) -> T {
        let now = self.clock.now();
        look(&mut self.state().records, now)
    }

    pub(crate) fn read_stale(&self, key: u32) -> Slot {
        let now = self.clock.now();
        let mut state = self.state();
        let super::State { rng, rates, records, counts, .. } = &mut *state;
        if rng.u32(..1000) < rates.stale
            && let Some(past) = records.past(key, rng.f64())
        {
            counts.stale += 1;
            return past;
        }
        records.slot(key, now)
    }

    /// The storage goes back to an older state, as one restored from a backup or failed over to a replica.
    pub(crate) fn restore(&self, backup: Backup) {
        self.note(format_args!("the storage goes back"));
        let mut state = self.state();
        state.records.restore(backup);
        state.counts.restores += 1;
        state.went_back_at = Some(self.clock.now());
    }
}
