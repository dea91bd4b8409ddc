//! [`World`]: some candidates, one slot and the network between them; the events that can happen next, and what
//! each does.

use crate::{
    observer::{Violation, share_of},
    process::{Actor, Answer, Call, Context, Failure, Kind, Process, Request},
};
use ielections::{DocumentId, DocumentVersion};
use ielections::{Entropy, Epoch, FenceState, Incarnation, Slot, Timing, Ttl, Vacant};
use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use vvm_clock::Instant;
use vvm_storage::{Decision, Shown, State, Step, decide};

#[derive(Clone)]
pub(crate) struct World {
    /// True time in nanoseconds. No part of the state, in which only differences count.
    pub(crate) now: u64,
    pub(crate) slot: Slot,
    pub(crate) processes: Vec<Process>,
    /// Writes without a waiting sender, which may be applied at any time or never.
    pub(crate) late: Vec<Request>,
    /// How many faults of each kind may still happen.
    pub(crate) left: [u8; Fault::ALL.len()],
    /// How many faults may still happen.
    pub(crate) faults: u8,
    /// The last claim that was applied.
    pub(crate) last_claim: Option<(Epoch, Incarnation)>,
    /// Another program has changed the record. I1 assumes that none does.
    pub(crate) is_foreign: bool,
    /// How many incarnations have a number. All are at most this.
    pub(crate) fresh: u64,
    pub(crate) draws: Arc<Draws>,
}

/// What can go wrong. A release is no fault, but is bounded alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A request or an answer takes long, or is lost.
    Slow,
    /// A write arrives after its sender has stopped waiting.
    Late,
    Twice,
    Crash,
    Pause,
    /// All messages of a process are lost for some time.
    Cut,
    NotApplied,
    /// A connection breaks: the outcome is unknown before the time of the call is over.
    Broken,
    Replaced,
    /// Another program deletes the record, and its epoch with it.
    Deleted,
    /// Another program releases the record.
    Vacated,
    Release,
}

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::Slow,
        Self::Late,
        Self::Twice,
        Self::Crash,
        Self::Pause,
        Self::Cut,
        Self::NotApplied,
        Self::Broken,
        Self::Replaced,
        Self::Deleted,
        Self::Vacated,
        Self::Release,
    ];

    pub(crate) const NAMES: [&'static str; Self::ALL.len()] = [
        "slow or lost messages",
        "late writes",
        "doubled writes",
        "crashes",
        "pauses",
        "partitions",
        "refusals",
        "broken connections",
        "replaced storages",
        "deleted records",
        "vacated records",
        "releases",
    ];
}

/// What may happen next. Numbers are those of processes, their actors, and late writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The next instant comes at which a timer ends, but messages come first.
    Advance,
    Woken(usize, usize),
    Killed(usize),
    Unanswered(usize, usize),
    /// As `Unanswered`, but the request arrives later.
    Overdue(usize, usize),
    Answered(usize, usize),
    AnsweredTwice(usize, usize),
    /// The request arrives; its answer takes longer.
    Arrives(usize, usize),
    Slow(usize, usize),
    Refused(usize, usize),
    Breaks(usize, usize),
    Replaced(usize, usize),
    Lands(usize),
    Crash(usize),
    Pause(usize),
    Resume(usize),
    Cut(usize),
    Mend(usize),
    HandBack(usize, usize),
    Deleted,
    Vacated,
}

/// An assumption of `docs/contributing/architecture.md`, to be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Assumption {
    /// Clocks advance within 10 % of true time.
    Clocks,
    /// Clocks count while the process is suspended.
    Suspend,
    /// The deadman ends the process at its deadline.
    Deadman,
    /// Each attempt has an incarnation of its own.
    Incarnations,
    /// The storage applies a write only if its condition holds.
    Conditions,
    /// No other program changes the record.
    Record,
    /// Work has stopped before it is handed back.
    HandedBack,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Kill deadlines in thousandths of a TTL, instead of the shipped ones.
    pub(crate) kill_share: Option<u64>,
    pub(crate) dropped: Option<Assumption>,
    /// The only invariant that is observed.
    pub(crate) only: Option<String>,
}

impl Settings {
    pub(crate) fn observes(&self, invariant: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == invariant)
    }

    pub(crate) fn drops(&self, assumption: Assumption) -> bool {
        self.dropped == Some(assumption)
    }

    pub(crate) fn kill_at(&self, ttl: Ttl, sent_at: Instant) -> Instant {
        match self.kill_share {
            Some(share) => sent_at.after(share_of(ttl.get(), share)),
            None => Timing::of(ttl).kill_at(sent_at),
        }
    }
}

/// What was reached on the way, and its story if one is told.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    pub(crate) reached: BTreeSet<&'static str>,
    pub(crate) story: Option<Vec<String>>,
}

impl Notes {
    pub(crate) fn reach(&mut self, what: &'static str) {
        self.reached.insert(what);
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }
}

/// The draws of the values, as the search chooses them.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    draw: AtomicU64,
    /// The number of incarnations so far.
    incarnations: AtomicU64,
    repeats: bool,
}

impl Draws {
    /// Draws that are all the same.
    pub(crate) fn new(draw: u64, settings: &Settings) -> Arc<Self> {
        let draw = AtomicU64::new(draw);
        Arc::new(Self { draw, repeats: settings.drops(Assumption::Incarnations), ..Self::default() })
    }
}

impl Entropy for Draws {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.incarnations.fetch_add(1, Ordering::Relaxed) + 1;
        bytes.fill(0);
        bytes[0] = if self.repeats { 1 } else { number as u8 };
    }

    fn next_u64(&self) -> u64 {
        self.draw.load(Ordering::Relaxed)
    }
}

/// The slot as [`decide`] reads it.
struct Standing<'a>(&'a Slot);

impl State for Standing<'_> {
    type Error = Infallible;

    fn slot(&self) -> Result<Slot, Infallible> {
        Ok(self.0.clone())
    }

    fn fence(&self) -> Result<FenceState, Infallible> {
        Ok(FenceState { slot: self.0.clone(), last: DocumentVersion::NONE })
    }

    fn version(&self, _: &DocumentId) -> Result<Option<DocumentVersion>, Infallible> {
        Ok(None)
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }
}

impl World {
    pub(crate) fn new(
        processes: Vec<Process>,
        left: [u8; Fault::ALL.len()],
        faults: u8,
        draws: Arc<Draws>,
    ) -> Self {
        let slot = Slot::Vacant(Vacant::default());
        let (late, last_claim) = (Vec::new(), None);
        let mut world = Self {
            now: 0,
            slot,
            processes,
            late,
            left,
            faults,
            last_claim,
            is_foreign: false,
            fresh: 0,
            draws,
        };
        world.processes.iter_mut().for_each(|process| process.begin(&world.draws));
        world
    }

    fn may(&self, fault: Fault) -> bool {
        self.left[fault as usize] > 0 && (self.faults > 0 || fault == Fault::Release)
    }

    fn spend(&mut self, fault: Fault, notes: &mut Notes) {
        notes.reach(Fault::NAMES[fault as usize]);
        self.left[fault as usize] -= 1;
        if fault != Fault::Release {
            self.faults -= 1;
        }
    }

    /// Ends all faults, for good.
    pub(crate) fn heal(&mut self) {
        (self.faults, self.late) = (0, Vec::new());
        self.left = Default::default();
        for process in &mut self.processes {
            (process.is_paused, process.is_cut) = (false, false);
            let calls = process.actors.iter_mut().filter_map(|actor| actor.call.as_mut());
            calls.for_each(|call| call.is_slow = false);
        }
    }

    /// The instants that are waited for: in how much true time, and what happens then.
    fn due(&self, settings: &Settings) -> Vec<(u64, Event)> {
        let mut due = Vec::new();
        for (number, process) in self.processes.iter().enumerate() {
            let mut at = |instant: Instant, event| {
                if instant != Instant::NEVER {
                    let left = process.clock.until(instant).as_nanos() as u64;
                    due.push(((left * 10).div_ceil(process.rate), event));
                }
            };
            let stands_still = process.is_paused && settings.drops(Assumption::Suspend);
            if let Some(leading) = process.leading()
                && !stands_still
                && !settings.drops(Assumption::Deadman)
            {
                at(leading.kill_at, Event::Killed(number));
            }
            if process.is_paused {
                continue;
            }
            for (index, actor) in process.actors.iter().enumerate() {
                at(actor.wake_at, Event::Woken(number, index));
                if let Some(call) = &actor.call
                    && (call.is_slow || process.is_cut)
                {
                    at(call.deadline, Event::Unanswered(number, index));
                }
            }
        }
        due
    }

    /// What can happen next. The first one is fair: answers before timers.
    pub(crate) fn events(&self, settings: &Settings) -> Vec<Event> {
        let mut events = Vec::new();
        let (mut is_prompt, mut is_open) = (false, !self.late.is_empty());
        for (number, process) in self.processes.iter().enumerate() {
            is_open |= process.is_paused || process.is_cut;
            if process.is_paused {
                events.push(Event::Resume(number));
                continue;
            }
            for (index, actor) in process.actors.iter().enumerate() {
                if let Some(call) = &actor.call
                    && !process.is_cut
                {
                    is_prompt |= !call.is_slow;
                    is_open |= call.is_slow;
                    self.messages(&mut events, (number, index), actor, call);
                }
                if let Kind::Leading(leading) = &actor.kind
                    && !leading.is_ending
                    && (leading.is_lost || self.may(Fault::Release))
                {
                    events.push(Event::HandBack(number, index));
                }
            }
            if process.is_cut {
                events.push(Event::Mend(number));
            } else if self.may(Fault::Cut) {
                events.push(Event::Cut(number));
            }
            if self.may(Fault::Pause) {
                events.push(Event::Pause(number));
            }
            if self.may(Fault::Crash) {
                events.push(Event::Crash(number));
            }
        }
        self.passing(&mut events, settings, is_prompt, is_open);
        events.extend((0..self.late.len()).map(Event::Lands));
        if self.slot.entry().is_some() {
            events.extend(self.may(Fault::Deleted).then_some(Event::Deleted));
            events.extend(self.may(Fault::Vacated).then_some(Event::Vacated));
        }
        events
    }

    fn messages(&self, events: &mut Vec<Event>, (number, index): (usize, usize), actor: &Actor, call: &Call) {
        events.push(Event::Answered(number, index));
        let is_write = matches!(call.request, Request::Write(_));
        let has_arrived = call.answer.is_some();
        if !call.is_slow && self.may(Fault::Slow) {
            events.push(Event::Slow(number, index));
        }
        if call.is_slow && !has_arrived {
            events.push(Event::Arrives(number, index));
        }
        if is_write && !has_arrived && self.may(Fault::Twice) {
            events.push(Event::AnsweredTwice(number, index));
        }
        if is_write && !has_arrived && self.may(Fault::NotApplied) {
            events.push(Event::Refused(number, index));
        }
        if self.may(Fault::Broken) {
            events.push(Event::Breaks(number, index));
        }
        if !matches!(actor.kind, Kind::Releasing(_)) && self.may(Fault::Replaced) {
            events.push(Event::Replaced(number, index));
        }
    }

    /// The events of the next instant. It does not come before prompt messages have arrived.
    fn passing(&self, events: &mut Vec<Event>, settings: &Settings, is_prompt: bool, is_open: bool) {
        let due = self.due(settings);
        let Some(next) = due.iter().map(|(after, _)| *after).min() else { return };
        if next > 0 && is_prompt {
            return;
        }
        for (_, event) in due.into_iter().filter(|(after, _)| *after == next) {
            events.push(event);
            if let Event::Unanswered(number, index) = event
                && self.may(Fault::Late)
                && let Some(Call { request: Request::Write(_), answer: None, .. }) =
                    self.processes[number].actors[index].call
            {
                events.push(Event::Overdue(number, index));
            }
        }
        if next > 0 && is_open {
            events.push(Event::Advance);
        }
    }

    fn advance(&mut self, settings: &Settings) {
        let next = self.due(settings).iter().map(|(after, _)| *after).min().unwrap_or(0);
        self.now += next;
        let is_exact = |process: &Process| (next * process.rate).is_multiple_of(10);
        assert!(
            self.processes.iter().all(is_exact),
            "{next} ns is no whole number of nanoseconds on each clock"
        );
        for process in &mut self.processes {
            if !process.is_paused || !settings.drops(Assumption::Suspend) {
                process.clock = process.clock.after(Duration::from_nanos(next * process.rate / 10));
            }
        }
    }

    /// Applies an event, and observes what follows.
    pub(crate) fn happen(
        &mut self,
        event: Event,
        settings: &Settings,
        notes: &mut Notes,
    ) -> Result<(), Violation> {
        if matches!(
            event,
            Event::Advance | Event::Woken(..) | Event::Killed(_) | Event::Unanswered(..) | Event::Overdue(..)
        ) {
            self.advance(settings);
        }
        notes.tell(|| self.told(event));
        let draws = Arc::clone(&self.draws);
        draws.incarnations.store(self.fresh, Ordering::Relaxed);
        match event {
            Event::Advance => {}
            Event::Resume(number) => self.processes[number].is_paused = false,
            Event::Mend(number) => self.processes[number].is_cut = false,
            Event::Cut(number) => {
                self.spend(Fault::Cut, notes);
                self.processes[number].is_cut = true;
            }
            Event::Pause(number) => {
                self.spend(Fault::Pause, notes);
                let process = &mut self.processes[number];
                process.is_paused = true;
                // Its answers wait as long as it does.
                let calls = process.actors.iter_mut().filter_map(|actor| actor.call.as_mut());
                calls.for_each(|call| call.is_slow = true);
            }
            Event::Slow(number, index) => {
                self.spend(Fault::Slow, notes);
                if let Some(call) = &mut self.processes[number].actors[index].call {
                    call.is_slow = true;
                }
            }
            Event::Crash(number) => {
                self.spend(Fault::Crash, notes);
                self.die(number, notes);
            }
            Event::Killed(number) => {
                let is_at_work = self.processes[number].leading().is_some_and(|leading| !leading.is_ending);
                notes.reach(if is_at_work { "a kill while working" } else { "a kill after the work" });
                self.die(number, notes);
            }
            Event::Deleted => {
                self.spend(Fault::Deleted, notes);
                (self.is_foreign, self.last_claim) = (true, None);
                self.slot = Slot::Vacant(Vacant::default());
            }
            Event::Vacated => {
                self.spend(Fault::Vacated, notes);
                self.is_foreign = true;
                self.slot = Slot::Vacant(Vacant { last_epoch: self.slot.last_epoch() });
            }
            Event::Lands(index) => {
                let request = self.late.remove(index);
                let answer = self.arrive(&request, settings, notes)?;
                if answer.0.is_none() {
                    notes.reach("a late write that applies");
                }
            }
            Event::Arrives(number, index) => self.arrives(number, index, settings, notes)?,
            Event::Answered(number, index) | Event::AnsweredTwice(number, index) => {
                if let Event::AnsweredTwice(..) = event {
                    self.spend(Fault::Twice, notes);
                    let call = &self.processes[number].actors[index].call;
                    self.late.extend(call.iter().map(|call| call.request.clone()));
                }
                self.arrives(number, index, settings, notes)?;
                let call = &mut self.processes[number].actors[index].call;
                if let Some(answer) = call.as_mut().and_then(|call| call.answer.take()) {
                    self.end_call(number, index, Ok(answer), settings, notes)?;
                }
            }
            Event::Refused(number, index) => {
                self.spend(Fault::NotApplied, notes);
                self.end_call(number, index, Err(Failure::NotApplied), settings, notes)?;
            }
            Event::Breaks(number, index) => {
                self.spend(Fault::Broken, notes);
                self.end_call(number, index, Err(Failure::Unanswered), settings, notes)?;
            }
            Event::Replaced(number, index) => {
                self.spend(Fault::Replaced, notes);
                self.end_call(number, index, Err(Failure::Replaced), settings, notes)?;
            }
            Event::Unanswered(number, index) | Event::Overdue(number, index) => {
                if let Event::Overdue(..) = event {
                    self.spend(Fault::Late, notes);
                    let call = &self.processes[number].actors[index].call;
                    self.late.extend(call.iter().map(|call| call.request.clone()));
                }
                self.end_call(number, index, Err(Failure::Unanswered), settings, notes)?;
            }
            Event::Woken(number, index) => {
                let mut cx = Context { settings, draws: &draws, notes };
                self.processes[number].woken(index, &mut cx)?;
            }
            Event::HandBack(number, index) => {
                let is_lost = self.processes[number].leading().is_some_and(|leading| leading.is_lost);
                if !is_lost {
                    self.spend(Fault::Release, notes);
                }
                let process = &mut self.processes[number];
                process.works_on |= settings.drops(Assumption::HandedBack);
                process.hand_back(index, &mut Context { settings, draws: &draws, notes });
            }
        }
        self.fresh = draws.incarnations.load(Ordering::Relaxed);
        self.observe(settings)
    }

    fn end_call(
        &mut self,
        number: usize,
        index: usize,
        answer: Result<Answer, Failure>,
        settings: &Settings,
        notes: &mut Notes,
    ) -> Result<(), Violation> {
        let draws = Arc::clone(&self.draws);
        self.processes[number].answered(index, answer, &mut Context { settings, draws: &draws, notes })
    }

    /// The process ends, and is started again. A write that it has sent may still arrive.
    fn die(&mut self, number: usize, notes: &mut Notes) {
        let process = &mut self.processes[number];
        let calls = process.actors.drain(..).filter_map(|actor| actor.call);
        let sent = calls.filter(|call| call.answer.is_none()).map(|call| call.request);
        let sent: Vec<_> = sent.filter(|request| matches!(request, Request::Write(_))).collect();
        (process.is_paused, process.works_on) = (false, false);
        process.begin(&self.draws);
        for request in sent {
            if self.may(Fault::Late) {
                self.spend(Fault::Late, notes);
                self.late.push(request);
            }
        }
    }

    /// The request of a call arrives, unless it has before.
    fn arrives(
        &mut self,
        number: usize,
        index: usize,
        settings: &Settings,
        notes: &mut Notes,
    ) -> Result<(), Violation> {
        let Some(call) = &self.processes[number].actors[index].call else { return Ok(()) };
        if call.answer.is_some() {
            return Ok(());
        }
        let request = call.request.clone();
        let answer = self.arrive(&request, settings, notes)?;
        if let Some(call) = &mut self.processes[number].actors[index].call {
            call.answer = Some(answer);
        }
        Ok(())
    }

    /// A request reaches the storage.
    fn arrive(
        &mut self,
        request: &Request,
        settings: &Settings,
        notes: &mut Notes,
    ) -> Result<Answer, Violation> {
        let Request::Write(step) = request else { return Ok(Answer(Some(self.slot.clone()))) };
        let Ok(decision) = decide(&Standing(&self.slot), step);
        let decision = match (step, decision) {
            (Step::Claim { to, .. } | Step::Renew { to, .. }, Decision::Refuse(_))
                if settings.drops(Assumption::Conditions) =>
            {
                Decision::Hold(to)
            }
            (_, decision) => decision,
        };
        let slot = match decision {
            Decision::Hold(to) => {
                if let Step::Claim { from, .. } = step {
                    if let Slot::Held { .. } = from {
                        notes.reach("a take-over after expiry");
                    }
                    if from.last_epoch().is_some() {
                        notes.reach("a second leadership");
                    }
                    self.claimed(to, settings)?;
                } else {
                    self.landed(to.epoch, to.incarnation(), settings)?;
                }
                for sent in self.processes.iter_mut().flat_map(|process| &mut process.sent) {
                    sent.applied |= sent.version == to.version;
                }
                Slot::Held { entry: to.clone(), proven_age: None }
            }
            Decision::Vacate(epoch) => {
                if let Step::Release { incarnation, .. } = step {
                    self.landed(epoch, *incarnation, settings)?;
                }
                Slot::Vacant(Vacant { last_epoch: Some(epoch) })
            }
            Decision::Refuse(Shown::Slot(stands)) => {
                if let (Step::Release { epoch, .. }, Some(entry)) = (step, stands.entry())
                    && entry.epoch > *epoch
                {
                    notes.reach("a release after a take-over");
                }
                notes.tell(|| format!("    the storage refuses {}: {stands}", request.told()));
                return Ok(Answer(Some(stands)));
            }
            Decision::Refuse(_) | Decision::Write(..) | Decision::Store(_) => return Ok(Answer(None)),
        };
        notes.tell(|| format!("    the storage applies {}", request.told()));
        self.slot = slot;
        Ok(Answer(None))
    }

    fn told(&self, event: Event) -> String {
        let name = |number: usize| self.processes[number].name;
        let request = |number: usize, index: usize| {
            let call = self.processes[number].actors[index].call.as_ref();
            call.map_or(String::new(), |call| call.request.told())
        };
        let what = match event {
            Event::Advance => "time passes".into(),
            Event::Woken(number, _) => format!("{}'s timer ends", name(number)),
            Event::Killed(number) => format!("{} is killed by its deadman, and starts again", name(number)),
            Event::Unanswered(number, index) => {
                format!("{}'s time for {} is over", name(number), request(number, index))
            }
            Event::Overdue(number, index) => {
                format!(
                    "{}'s time for {} is over, which is still under way",
                    name(number),
                    request(number, index)
                )
            }
            Event::Answered(number, index) => {
                format!("{} gets the answer to {}", name(number), request(number, index))
            }
            Event::AnsweredTwice(number, index) => {
                format!("{} gets the answer to {}, and a copy goes on", name(number), request(number, index))
            }
            Event::Arrives(number, index) => {
                format!("{} of {} arrives, the answer is slow", request(number, index), name(number))
            }
            Event::Slow(number, index) => format!("{} of {} is slow", request(number, index), name(number)),
            Event::Refused(number, index) => {
                format!("{} of {} is answered as not applied", request(number, index), name(number))
            }
            Event::Breaks(number, index) => {
                format!("the connection for {} of {} breaks", request(number, index), name(number))
            }
            Event::Replaced(number, _) => format!("{} is told that the storage was replaced", name(number)),
            Event::Lands(index) => format!("{} arrives late", self.late[index].told()),
            Event::Crash(number) => format!("{} crashes, and starts again", name(number)),
            Event::Pause(number) => format!("{} is stopped", name(number)),
            Event::Resume(number) => format!("{} goes on", name(number)),
            Event::Cut(number) => format!("{} is cut off", name(number)),
            Event::Mend(number) => format!("{} is connected again", name(number)),
            Event::HandBack(number, _) => format!("{} has stopped its work and hands back", name(number)),
            Event::Deleted => "another program deletes the record and its epoch".into(),
            Event::Vacated => "another program deletes the record".into(),
        };
        format!("{:8.4} s  {what}", self.now as f64 / 1e9)
    }
}
