//! Calls: their arrival at the storage, their effect, and their answer.

use super::{Event, Happening, Moment, World};
use ielections::{
    Claim, Entry, Epoch, Incarnation, ReadError, Slot, Swap, Vacant, WriteError, storage::Cause,
};
use std::time::Duration;

/// The shortest delay of a call. Without it the simplest run would never advance time.
pub(crate) const HOP: Duration = Duration::from_micros(10);

/// A call of the storage. Slots are named by their index.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Scan,
    Get(usize),
    Insert(usize, Vacant, Entry),
    TakeOver(usize, Entry, Entry),
    Swap(usize, Entry, Entry),
    Delete(usize, Incarnation, Epoch),
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) who: usize,
    /// The campaign that sent it, if one did.
    pub(crate) run: Option<usize>,
    pub(crate) request: Request,
    /// Its result, once it has arrived.
    pub(crate) found: Option<Found>,
    pub(crate) answered: bool,
    pub(crate) failure: Option<Failure>,
    /// A guardian sent it, and waits for no answer here.
    pub(crate) by_guardian: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Found {
    Slots(Vec<Slot>),
    Applied,
    Refused(Slot),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    NotApplied,
    Unknown,
    Fatal,
}

impl Failure {
    pub(crate) fn of_write(self) -> WriteError {
        match self {
            Self::NotApplied => WriteError::NotApplied(cause()),
            Self::Unknown => WriteError::Unknown(cause()),
            Self::Fatal => WriteError::Fatal(cause()),
        }
    }
}

pub(crate) fn cause() -> Cause {
    "made up".into()
}

impl Call {
    pub(crate) fn claim(&self) -> Result<Claim, WriteError> {
        match (self.failure, &self.found) {
            (Some(failure), _) => Err(failure.of_write()),
            (None, Some(Found::Refused(slot))) => Ok(Claim::Refused(slot.clone())),
            (None, _) => Ok(Claim::Claimed),
        }
    }

    pub(crate) fn swap(&self) -> Result<Swap, WriteError> {
        self.claim().map(|claim| match claim {
            Claim::Claimed => Swap::Swapped,
            Claim::Refused(slot) => Swap::Mismatch(slot),
        })
    }

    pub(crate) fn slots(&self) -> Result<Vec<Slot>, ReadError> {
        match (self.failure, &self.found) {
            (None, Some(Found::Slots(slots))) => Ok(slots.clone()),
            _ => Err(ReadError::Unavailable(cause())),
        }
    }
}

impl World {
    /// Sends a request and draws its fate. `timeout` is on the sender's clock.
    pub(super) fn send(&mut self, who: usize, run: Option<usize>, request: Request, timeout: Duration) {
        let (call, answered_after) = self.depart(who, run, request, timeout);
        self.schedule(who, answered_after + HOP * 2, Happening::Answered { call });
    }

    /// Sends a request whose answer is not delivered. Returns the call, and when it would be answered.
    pub(super) fn depart(
        &mut self,
        who: usize,
        run: Option<usize>,
        request: Request,
        timeout: Duration,
    ) -> (usize, Duration) {
        let call = self.calls.len();
        let longest = self.candidates[who].clock.span(timeout);
        let longest = if self.is_calm() { longest.mul_f64(0.8) } else { longest };
        let out = self.tape.span(longest);
        let back = self.tape.span(longest - out);
        let reads = matches!(request, Request::Scan | Request::Get(_));
        let fate = if self.is_calm() { 0 } else { self.tape.below(if reads { 9 } else { 16 }) };
        let (lands_after, failure) = match fate {
            0..8 => (Some(out), None),
            8 => (None, Some(Failure::Unknown)),
            9 | 10 => (Some(out), Some(Failure::Unknown)),
            // Any delay, also longer than every TTL.
            11..=13 => (Some(self.tape.span(Duration::from_millis(600))), Some(Failure::Unknown)),
            14 => (None, Some(Failure::NotApplied)),
            _ => (None, Some(Failure::Fatal)),
        };
        let timed_out = failure.is_some() && self.tape.chance(50);
        let answered_after = if timed_out { longest } else { out + back };
        self.calls.push(Call {
            who,
            run,
            request,
            found: None,
            answered: false,
            failure,
            by_guardian: false,
        });
        if let Some(delay) = lands_after {
            self.put(self.now + (HOP + delay).as_nanos() as u64, Event::Lands { call });
        }
        (call, answered_after)
    }

    pub(super) fn lands(&mut self, call: usize) {
        let request = self.calls[call].request.clone();
        let who = self.calls[call].who;
        let found = match &request {
            Request::Scan => {
                let slots = (0..self.places.len()).map(|at| {
                    let by = self.tape.below(4).saturating_sub(1);
                    let slot = self.places[at].stale(by).clone();
                    self.aged(who, slot)
                });
                Found::Slots(slots.collect())
            }
            Request::Get(at) => {
                let slot = self.places[*at].slot().clone();
                Found::Slots(vec![self.aged(who, slot)])
            }
            Request::Insert(at, vacant, entry) => {
                self.put_entry(*at, entry, |slot| *slot == Slot::Vacant(*vacant))
            }
            Request::TakeOver(at, held, entry) | Request::Swap(at, held, entry) => {
                self.put_entry(*at, entry, |slot| {
                    slot.entry().is_some_and(|found| found.version == held.version)
                })
            }
            Request::Delete(at, incarnation, epoch) => {
                let entry = self.places[*at].slot().entry();
                let ours = entry.is_some_and(|found| found.is_of(*incarnation, *epoch));
                if self.calls[call].by_guardian {
                    self.judge_release(*at, *epoch, ours);
                }
                if ours {
                    self.places[*at].history.push(Slot::Vacant(Vacant { last_epoch: Some(*epoch) }));
                }
                Found::Applied
            }
        };
        if matches!(found, Found::Applied) {
            self.judge_landing(call, &request);
        }
        self.calls[call].found = Some(found);
    }

    fn put_entry(&mut self, at: usize, entry: &Entry, expected: impl Fn(&Slot) -> bool) -> Found {
        let place = &mut self.places[at];
        if !expected(place.slot()) {
            return Found::Refused(place.slot().clone());
        }
        place.history.push(Slot::Held { entry: entry.clone(), proven_age: None });
        Found::Applied
    }

    /// Checks an applied attempt: its campaign still has it, or has named it among the records that it may
    /// have left.
    fn judge_landing(&mut self, call: usize, request: &Request) {
        let (
            Some(run),
            Request::Insert(at, _, entry) | Request::TakeOver(at, _, entry) | Request::Swap(at, _, entry),
        ) = (self.calls[call].run, request)
        else {
            return;
        };
        if self.calls[call].answered {
            self.counts.landed_late += 1;
        }
        let run = &self.runs[run];
        let sent = run.attempts.iter().skip_while(|(_, version)| *version != entry.version);
        let elsewhere = sent.clone().any(|(tried, _)| tried != at);
        let forgotten = run.left.as_ref().is_some_and(|left| !left.contains(&entry.incarnation()));
        self.check(!elsewhere, || format!("{:?} landed after another slot was tried (I7)", entry.version));
        self.check(!forgotten, || {
            format!("{:?} landed, and its campaign had ended without naming it", entry.version)
        });
    }

    /// Sometimes proves the age of a record to this observer, never more than the truth (I5).
    fn aged(&mut self, who: usize, slot: Slot) -> Slot {
        match slot {
            Slot::Held { entry, .. } if self.tape.chance(30) => {
                let version = (entry.version.incarnation, entry.version.write);
                let proven_age = self.issued.get(&version).map(|&issued| self.local_since(who, issued));
                Slot::Held { entry, proven_age }
            }
            unproven => unproven,
        }
    }
}

/// The slot.
#[derive(Debug)]
pub(crate) struct Place {
    /// All states so far; the last one is current.
    pub(crate) history: Vec<Slot>,
    pub(crate) terms: Vec<Term>,
}

/// A leadership, and until when its leader can act: until it stops or is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) ends: Moment,
}

impl Default for Place {
    fn default() -> Self {
        Self { history: vec![Slot::Vacant(Vacant::default())], terms: Vec::new() }
    }
}

impl Place {
    pub(crate) fn slot(&self) -> &Slot {
        // Never empty: it begins with one state and only grows.
        &self.history[self.history.len() - 1]
    }

    /// The current state or an earlier one, as a stale scan shows it.
    pub(crate) fn stale(&self, by: usize) -> &Slot {
        &self.history[self.history.len() - 1 - by.min(self.history.len() - 1)]
    }

    /// Why no candidate can begin to lead under `epoch` now, if so.
    pub(crate) fn objection(&self, now: Moment, epoch: Epoch) -> Option<String> {
        let overlapping = self.terms.iter().find(|term| term.ends > now);
        if let Some(term) = overlapping {
            return Some(format!(
                "two leaders: {epoch:?} begins {} ns before {:?} ends",
                term.ends - now,
                term.epoch
            ));
        }
        let not_after = self.terms.iter().find(|term| term.epoch >= epoch);
        not_after.map(|term| format!("{epoch:?} after {:?}", term.epoch))
    }
}
