//! One candidate: campaigns, leads for a while, stops, loses, stalls, crashes, is killed, and restarts.

use super::{
    Drifting, Event, Happening, Moment, Run, TTLS, World,
    network::{HOP, Request, Term},
};
use crate::tape::Tape;
use ielections::{
    AcquireTimeout, Entropy, Entry, Epoch, Holder, Incarnation, Terms, Timing, Ttl,
    protocol::{Campaign, CampaignEvent, CampaignStep, Lease, LeaseEvent, LeaseStep, RenewalAttempts, Won},
    timing::Jitter,
};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use testing_time::MockWallClock;
use vvm_clock::Instant;

#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) clock: Drifting,
    pub(crate) state: State,
    /// Rises with every restart, so that events of the time before have no effect.
    pub(crate) life: u64,
    pub(crate) stalled_until: Moment,
    pub(crate) ttl: Ttl,
    poll: Duration,
    timer: u64,
    calling: bool,
    withdrawn: bool,
    entropy: Arc<dyn Entropy>,
    wall: MockWallClock,
    /// Of all its leaderships so far.
    pub(crate) tickets: Vec<Ticket>,
    /// Steps at one moment of the world.
    steps: (Moment, u32),
}

#[derive(Debug)]
pub(crate) enum State {
    Out,
    Campaigning { campaign: Campaign, run: usize },
    Leading { lease: Lease, at: usize, term: usize, stopped: bool },
}

/// Never repeats, and the same in every run (splitmix64 over a counter).
#[derive(Debug)]
struct Counted(AtomicU64);

impl Entropy for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

impl Candidate {
    pub(crate) fn new(who: usize, tape: &mut Tape) -> Self {
        let ttl = TTLS[tape.below(TTLS.len())];
        Self {
            clock: Drifting::new(tape),
            state: State::Out,
            life: 0,
            stalled_until: 0,
            ttl,
            poll: [ttl.get() / 4, ttl.get() / 4, ttl.get() / 20, Duration::ZERO][tape.below(4)],
            timer: 0,
            calling: false,
            withdrawn: false,
            entropy: Arc::new(Counted(AtomicU64::new((who as u64) << 56))),
            wall: MockWallClock::new(),
            tickets: Vec::new(),
            steps: (0, 0),
        }
    }
}

impl World {
    pub(super) fn happens(&mut self, who: usize, what: Happening) {
        if !self.is_calm() && self.tape.chance(1) {
            let stall = self.tape.span(Duration::from_millis(600));
            self.candidates[who].stalled_until = self.now + stall.as_nanos() as u64;
        }
        match what {
            Happening::Starts => self.start(who),
            Happening::Woken { timer } if timer == self.candidates[who].timer => {
                self.step(who, CampaignEvent::Woken, LeaseEvent::Woken);
            }
            Happening::Woken { .. } => {}
            Happening::Hinted { more } => self.hinted(who, more),
            Happening::MaySend => self.step(who, CampaignEvent::MaySend, LeaseEvent::MaySend),
            Happening::Answered { call } => self.answered(who, call),
            Happening::Withdrawn { run } => self.withdraw(who, run),
            Happening::WorkStops => self.stop_work(who),
            Happening::Crashes => self.die(who),
            Happening::Killed { at } => self.killed(who, at),
        }
    }

    fn start(&mut self, who: usize) {
        let timeout = match if self.is_calm() { 0 } else { self.tape.below(6) } {
            0..4 => AcquireTimeout::Forever,
            4 => AcquireTimeout::Within(self.tape.span(Duration::from_millis(500))),
            _ => AcquireTimeout::UntilLeaderSeen,
        };
        let wall =
            if self.tape.chance(10) { self.tape.span(Duration::from_secs(10)) } else { Duration::ZERO };
        let (slots, now, run) = (self.places.len(), self.local(who), self.runs.len());
        let withdrawn_after =
            (!self.is_calm() && self.tape.chance(20)).then(|| self.tape.span(Duration::from_secs(1)));
        let one = &mut self.candidates[who];
        one.wall.set(wall);
        one.withdrawn = false;
        let holder = Holder::new(format!("candidate {who}")).unwrap();
        let terms = Terms { holder, ttl: one.ttl, timeout, poll: one.poll };
        let campaign =
            Campaign::begin(terms, slots, now, Arc::clone(&one.entropy), Arc::new(one.wall.clone()));
        one.state = State::Campaigning { campaign, run };
        self.runs.push(Run::default());
        if let Some(delay) = withdrawn_after {
            self.schedule(who, delay, Happening::Withdrawn { run });
        }
        if !self.is_calm() && self.tape.chance(50) {
            let (delay, more) = (self.tape.span(Duration::from_millis(300)), self.tape.below(40));
            self.schedule(who, delay, Happening::Hinted { more });
        }
        self.step(who, CampaignEvent::Woken, LeaseEvent::Woken);
    }

    /// Delivers a hint, and schedules `more` at random moments.
    fn hinted(&mut self, who: usize, more: usize) {
        if let Some(more) = more.checked_sub(1) {
            let pause = self.tape.span(Duration::from_millis(60));
            self.schedule(who, pause + HOP, Happening::Hinted { more });
        }
        // As the engine does: only to campaigns whose caller waits.
        if let State::Campaigning { .. } = self.candidates[who].state
            && !self.candidates[who].withdrawn
        {
            self.counts.hinted += 1;
            self.step(who, CampaignEvent::Hinted, LeaseEvent::Woken);
        }
    }

    /// Restarts the candidate. Calls in flight stay in flight.
    pub(super) fn end(&mut self, who: usize) {
        let one = &mut self.candidates[who];
        one.state = State::Out;
        one.life += 1;
        one.timer += 1;
        one.calling = false;
        let longest = Duration::from_millis(if self.is_calm() { 10 } else { 300 });
        let pause = self.tape.span(longest);
        self.schedule(who, pause + HOP, Happening::Starts);
    }

    fn killed(&mut self, who: usize, at: Moment) {
        let State::Leading { at: place, term, .. } = self.candidates[who].state else { return };
        if self.places[place].terms[term].ends == at {
            self.counts.killed += 1;
            self.die(who);
        }
    }

    fn step(&mut self, who: usize, campaigning: CampaignEvent, leading: LeaseEvent) {
        let one = &mut self.candidates[who];
        one.steps = if one.steps.0 == self.now { (self.now, one.steps.1 + 1) } else { (self.now, 0) };
        let (spins, now) = (one.steps.1 > 200, self.local(who));
        self.check(!spins, || format!("candidate {who} spins (I10)"));
        match &mut self.candidates[who].state {
            State::Out => {}
            State::Campaigning { campaign, run } => {
                let (step, run) = (campaign.on(now, campaigning), *run);
                self.campaign(who, run, step);
            }
            State::Leading { stopped: true, .. } => {}
            State::Leading { lease, .. } => {
                let step = lease.on(now, leading, Jitter::NONE);
                self.lead(who, step);
            }
        }
    }

    fn campaign(&mut self, who: usize, run: usize, step: CampaignStep) {
        match step {
            CampaignStep::Won(won) => self.won(who, run, won),
            CampaignStep::Failed(_) => self.give_up(who),
            _ if self.candidates[who].withdrawn => self.give_up(who),
            CampaignStep::Sleep(until) => self.wake(who, until),
            CampaignStep::Send => self.queue(who),
            CampaignStep::Scan(timeout) => self.ask(who, Some(run), Request::Scan, timeout),
            CampaignStep::Read(at, timeout) => self.ask(who, Some(run), Request::Get(at), timeout),
            CampaignStep::Insert(at, vacant, entry, timeout) => {
                self.attempt(who, run, at, &entry);
                self.ask(who, Some(run), Request::Insert(at, vacant, entry), timeout);
            }
            CampaignStep::TakeOver(at, observed, entry, timeout) => {
                self.judge_take_over(who, run, &observed);
                self.attempt(who, run, at, &entry);
                self.ask(who, Some(run), Request::TakeOver(at, observed, entry), timeout);
            }
            CampaignStep::Renew(at, held, entry, timeout) => {
                self.counts.own_renewed += 1;
                self.attempt(who, run, at, &entry);
                self.ask(who, Some(run), Request::Swap(at, held, entry), timeout);
            }
        }
    }

    fn issue(&mut self, who: usize, entry: &Entry) {
        let version = (entry.version.incarnation, entry.version.write);
        let fresh = self.issued.insert(version, self.now).is_none();
        self.check(fresh, || format!("candidate {who} writes {:?} twice", entry.version));
    }

    fn attempt(&mut self, who: usize, run: usize, at: usize, entry: &Entry) {
        self.issue(who, entry);
        self.runs[run].attempts.push((at, entry.version));
        self.runs[run].incarnations.insert(entry.incarnation());
    }

    fn judge_take_over(&mut self, who: usize, run: usize, observed: &Entry) {
        let own = self.runs[run].incarnations.contains(&observed.incarnation());
        self.check(!own, || format!("candidate {who} waited for its own record to expire"));
        let version = (observed.version.incarnation, observed.version.write);
        let age = self.issued.get(&version).map_or(Duration::ZERO, |&issued| self.local_since(who, issued));
        self.check(age >= observed.ttl.get(), || {
            format!("candidate {who} takes over after {age:?} a record with a TTL of {} (I5)", observed.ttl)
        });
        self.counts.taken_over += 1;
    }

    fn won(&mut self, who: usize, run: usize, won: Won) {
        let version = (won.entry.version.incarnation, won.entry.version.write);
        let sent_at = self.issued.get(&version).map(|&issued| self.candidates[who].clock.shows(issued));
        self.check(sent_at == Some(won.sent_at), || "won, but not from its send (I3)".into());
        let timing = Timing::of(won.entry.ttl);
        let now = self.local(who);
        self.check(timing.is_fresh(won.sent_at, now), || "won too late to start work".into());
        let place = &self.places[won.slot];
        let stands = place.slot().entry().is_some_and(|found| found.version == won.entry.version);
        let objection = place.objection(self.now, won.entry.epoch);
        self.check(stands, || format!("candidate {who} won with a record that is not in the slot"));
        self.check(objection.is_none(), || objection.unwrap_or_default());
        self.runs[run].left = Some([].into());
        self.counts.won += 1;
        let term = self.places[won.slot].terms.len();
        let epoch = won.entry.epoch;
        self.places[won.slot].terms.push(Term { epoch, ends: 0 });
        self.deposit(who, &won);
        let lease = Lease::begin(won.entry, won.sent_at, RenewalAttempts::UntilLoss, Jitter::NONE);
        let wake_at = lease.wake_at();
        self.candidates[who].state = State::Leading { lease, at: won.slot, term, stopped: false };
        self.confirmed(who, won.sent_at);
        self.wake(who, wake_at);
        if !self.is_calm() {
            let what = [Happening::WorkStops, Happening::Crashes][self.tape.below(2)];
            // The simplest leaders lead for a long time.
            let longest = Duration::from_secs(1);
            let delay = longest - self.tape.span(longest);
            self.schedule(who, delay, what);
        }
    }

    /// Sets the deadman from the confirmed send, on the leader's clock (I3).
    fn confirmed(&mut self, who: usize, sent_at: Instant) {
        let State::Leading { at, term, .. } = self.candidates[who].state else { return };
        let timing = Timing::of(self.candidates[who].ttl);
        let ends = self.candidates[who].clock.when(timing.kill_at(sent_at));
        let place = &mut self.places[at];
        place.terms[term].ends = ends;
        let last = place.terms.len() == term + 1;
        self.check(last, || format!("candidate {who} renewed a slot that another one leads"));
        self.schedule_at(who, ends.max(self.now), Happening::Killed { at: ends });
    }

    fn lead(&mut self, who: usize, step: LeaseStep) {
        match step {
            LeaseStep::Sleep(until) => self.wake(who, until),
            LeaseStep::Send(until) => {
                self.wake(who, until);
                self.queue(who);
            }
            LeaseStep::Swap { held, entry, timeout, loss_at } => {
                let State::Leading { at, .. } = self.candidates[who].state else { return };
                self.issue(who, &entry);
                self.wake(who, loss_at);
                self.ask(who, None, Request::Swap(at, held, entry), timeout);
            }
            LeaseStep::ReadBack { timeout, loss_at } => {
                let State::Leading { at, .. } = self.candidates[who].state else { return };
                self.wake(who, loss_at);
                self.ask(who, None, Request::Get(at), timeout);
            }
            LeaseStep::Confirmed { sent_at, wake_at } => {
                self.counts.renewed += 1;
                self.confirmed(who, sent_at);
                self.wake(who, wake_at);
            }
            LeaseStep::Lost(_) => {
                self.counts.lost += 1;
                // The deadman ends work that does not stop in time.
                let delay = self.tape.span(Duration::from_millis(60));
                self.schedule(who, delay, Happening::WorkStops);
            }
            LeaseStep::Over => {}
        }
    }

    /// Handles the end of the work: the record is released once no renewal is in flight (I6).
    fn stop_work(&mut self, who: usize) {
        let calling = self.candidates[who].calling;
        let State::Leading { lease, at, term, stopped } = &mut self.candidates[who].state else { return };
        *stopped = true;
        let (at, term) = (*at, *term);
        let (incarnation, epoch) = (lease.held().incarnation(), lease.held().epoch);
        let ends = &mut self.places[at].terms[term].ends;
        *ends = self.now.min(*ends);
        if !calling {
            let timeout = Timing::of(self.candidates[who].ttl).attempt_timeout();
            self.send(who, None, Request::Delete(at, incarnation, epoch), timeout);
            self.end(who);
        }
    }

    fn answered(&mut self, who: usize, call: usize) {
        self.calls[call].answered = true;
        self.candidates[who].calling = false;
        let call = &self.calls[call];
        let first = |slots: Vec<_>| slots.into_iter().next();
        let read = || call.slots().map(|slots| first(slots).unwrap());
        let (campaigning, leading) = match call.request {
            Request::Scan => (crate::scan(call.slots()), LeaseEvent::Woken),
            Request::Get(_) => (CampaignEvent::Read(read()), LeaseEvent::Read(read())),
            Request::Insert(..) | Request::TakeOver(..) => {
                (CampaignEvent::Claimed(call.claim()), LeaseEvent::Woken)
            }
            Request::Swap(..) => (CampaignEvent::Swapped(call.swap()), LeaseEvent::Swapped(call.swap())),
            Request::Delete(..) => return,
        };
        if let State::Leading { stopped: true, .. } = self.candidates[who].state {
            return self.stop_work(who);
        }
        self.step(who, campaigning, leading);
    }

    fn withdraw(&mut self, who: usize, run: usize) {
        let calling = self.candidates[who].calling;
        if matches!(self.candidates[who].state, State::Campaigning { run: now, .. } if now == run) {
            self.candidates[who].withdrawn = true;
            if !calling {
                self.give_up(who);
            }
        }
    }

    /// Deletes the records that the campaign may have left.
    fn give_up(&mut self, who: usize) {
        let state = mem::replace(&mut self.candidates[who].state, State::Out);
        let State::Campaigning { campaign, run } = state else { return };
        let timeout = Timing::of(self.candidates[who].ttl).attempt_timeout();
        let (at, left) = campaign.abandon().unwrap_or_default();
        self.runs[run].left = Some(left.iter().map(Entry::incarnation).collect());
        for entry in left {
            self.counts.abandoned += 1;
            self.send(who, None, Request::Delete(at, entry.incarnation(), entry.epoch), timeout);
        }
        self.end(who);
    }

    fn wake(&mut self, who: usize, until: Instant) {
        self.candidates[who].timer += 1;
        if until != Instant::NEVER {
            let timer = self.candidates[who].timer;
            let at = self.candidates[who].clock.when(until).max(self.now);
            self.schedule_at(who, at, Happening::Woken { timer });
        }
    }

    fn queue(&mut self, who: usize) {
        let longest = self.candidates[who].ttl.get() / if self.tape.chance(5) { 1 } else { 50 };
        let queued = if self.is_calm() { Duration::ZERO } else { self.tape.span(longest) };
        self.schedule(who, queued, Happening::MaySend);
    }

    fn ask(&mut self, who: usize, run: Option<usize>, request: Request, timeout: Duration) {
        self.candidates[who].calling = true;
        self.send(who, run, request, timeout);
    }
}

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
