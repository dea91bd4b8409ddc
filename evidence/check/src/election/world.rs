//! [`World`]: some candidates, one slot and the network between them. What can happen next, and what it does.

use super::{
    cells::CellWorld,
    event::{Event, What},
    message::{Answer, Datagram, Failure, Request},
    process::{Actor, Call, Kind, Process, SUPPORT},
    servers::Servers,
    settings::{Context, Surroundings},
};
use crate::{Assumption, search::Notes};
use ielections::protocol::successor::SupportEvent;
use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Vacant, Version};
use std::{sync::Arc, time::Duration};
use vvm_clock::Instant;
use vvm_storage::{CurrentState, Decision, SlotAlone, Step, decide};

#[derive(Clone)]
pub(crate) struct World {
    /// True time in nanoseconds. No part of the state, in which only differences count.
    pub(crate) now: u64,
    pub(crate) slot: Slot,
    pub(crate) processes: Vec<Process>,
    /// Writes without a waiting sender, which may be applied at any time or never.
    pub(crate) late: Vec<Request>,
    /// How often each bounded event may still happen.
    pub(crate) left: Vec<(What, u8)>,
    pub(crate) faults: u8,
    pub(crate) last_claim: Option<(Epoch, Incarnation)>,
    /// Another program has changed the record. I1 assumes that none does.
    pub(crate) is_foreign: bool,
    /// How many incarnations there are. All have a number up to this.
    pub(crate) incarnations: u64,
    /// The last acquisition was that of a placeholder.
    pub(crate) last_was_placeholder: bool,
    /// The storage, if it is cells. Then `slot` is not used.
    pub(crate) cells: Option<CellWorld>,
    /// The storage, if servers of it are promoted. Then `slot` is not used.
    pub(crate) servers: Option<Servers>,
    /// Datagrams that may arrive at any time or never, each with the number of its sender.
    pub(crate) late_datagrams: Vec<(usize, Datagram)>,
    pub(crate) around: Arc<Surroundings>,
}

impl World {
    pub(crate) fn new(
        processes: Vec<Process>,
        left: Vec<(What, u8)>,
        faults: u8,
        around: Arc<Surroundings>,
    ) -> Self {
        let mut world = Self {
            now: 0,
            slot: Slot::Vacant(Vacant::default()),
            processes,
            late: Vec::new(),
            left,
            faults,
            last_claim: None,
            is_foreign: false,
            incarnations: 0,
            last_was_placeholder: false,
            cells: None,
            servers: None,
            late_datagrams: Vec::new(),
            around,
        };
        world.processes.iter_mut().for_each(|process| process.begin(&world.around));
        world
    }

    pub(crate) fn left(&self, what: What) -> u8 {
        self.left.iter().find(|(bounded, _)| *bounded == what).map_or(0, |(_, left)| *left)
    }

    fn may(&self, what: What) -> bool {
        !what.is_bounded() || self.left(what) > 0 && (self.faults > 0 || !what.is_fault())
    }

    pub(super) fn spend(&mut self, what: What, cx: &mut Context<'_>) {
        if let Some((_, left)) = self.left.iter_mut().find(|(bounded, _)| *bounded == what) {
            cx.notes.reach(what.told());
            *left -= 1;
            self.faults -= u8::from(what.is_fault());
        }
    }

    pub(crate) fn heal(&mut self) {
        (self.faults, self.late, self.left) = (0, Vec::new(), Vec::new());
        self.late_datagrams.clear();
        self.cells.iter_mut().for_each(CellWorld::heal);
        self.servers.iter_mut().for_each(|servers| servers.late.clear());
        for process in &mut self.processes {
            (process.is_paused, process.is_cut, process.is_unlinked) = (false, false, false);
            process.supported().into_iter().for_each(|support| support.is_slow = false);
            process.calls().for_each(|call| call.is_slow = false);
        }
    }

    /// The instants that are waited for: in how much true time, and what happens then.
    fn due(&self) -> Vec<(u64, Event)> {
        let mut due = Vec::new();
        for (number, process) in self.processes.iter().enumerate() {
            let mut at = |instant: Instant, what, actor| {
                if instant != Instant::NEVER {
                    let left = process.clock.until(instant).as_nanos() as u64 * 10;
                    due.push((left.div_ceil(process.rate), Event { what, process: number, actor }));
                }
            };
            let stands_still = process.is_paused && self.around.drops(Assumption::Suspend);
            if let Some(leading) = process.leading()
                && !stands_still
                && !self.around.drops(Assumption::Deadman)
            {
                at(leading.dead_at(), What::Killed, 0);
            }
            if process.is_paused {
                continue;
            }
            if let Some(support) = process.leading().and_then(|leading| leading.support.as_ref()) {
                at(support.wake_at, What::Woken, SUPPORT);
            }
            for (index, actor) in process.actors.iter().enumerate() {
                at(actor.wake_at, What::Woken, index);
                let waits = |call: &&Call| call.is_slow || process.is_cut;
                if let Some(call) = actor.call.as_ref().filter(waits) {
                    at(call.deadline, What::Unanswered, index);
                }
            }
        }
        due
    }

    pub(super) fn possible(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut add = |what, process, actor| {
            if self.may(what) {
                events.push(Event { what, process, actor });
            }
        };
        let has_late = self.cells.as_ref().map_or(!self.late.is_empty(), |cells| cells.late() > 0);
        let (mut is_prompt, mut is_open) = (false, has_late);
        for (number, process) in self.processes.iter().enumerate() {
            is_open |= process.is_paused || process.is_cut || process.is_unlinked;
            if process.is_paused {
                add(What::Resume, number, 0);
                continue;
            }
            if let Some(support) = process.leading().and_then(|leading| leading.support.as_ref())
                && support.asked.is_some()
            {
                (is_prompt, is_open) = (is_prompt || !support.is_slow, is_open || support.is_slow);
                add(What::Tightened, number, 0);
                if !support.is_slow {
                    add(What::TightensLate, number, 0);
                }
            }
            for (index, actor) in process.actors.iter().enumerate() {
                if let Some(call) = actor.call.as_ref().filter(|_| !process.is_cut) {
                    (is_prompt, is_open) = (is_prompt || !call.is_slow, is_open || call.is_slow);
                    messages(actor, call).for_each(|what| add(what, number, index));
                }
                if let Kind::Leading(leading) = &actor.kind
                    && !leading.is_ending
                {
                    let may_stop = leading.is_lost || leading.may_stop;
                    add(if may_stop { What::HandBack } else { What::Release }, number, index);
                }
                if matches!(actor.kind, Kind::Succeeding(_)) && !process.leaves {
                    add(What::Leaves, number, index);
                }
            }
            add(if process.is_cut { What::Mend } else { What::Cut }, number, 0);
            add(What::Pause, number, 0);
            add(What::Crash, number, 0);
            if self.around.succeeds && !process.actors.is_empty() {
                add(if process.is_unlinked { What::Link } else { What::Unlink }, number, 0);
            }
        }
        let due = self.due();
        let next = due.iter().map(|(after, _)| *after).min().unwrap_or(0);
        // The next instant does not come before prompt messages have arrived.
        let is_near = |(after, _): &(u64, Event)| *after == next && (next == 0 || !is_prompt);
        for (_, Event { what, process, actor }) in due.into_iter().filter(is_near) {
            add(what, process, actor);
            if what == What::Woken && self.may_send_datagrams(process, actor) {
                What::DATAGRAMS.into_iter().for_each(|(what, _)| add(what, process, actor));
            }
            if what == What::Unanswered
                && let Some(Call { request: Request::Write(_), answer: None, .. }) =
                    self.processes[process].actors[actor].call
            {
                add(What::Late, process, actor);
            }
        }
        if next > 0 && is_open && !is_prompt {
            add(What::TimePasses, 0, 0);
        }
        let late = self.cells.as_ref().map_or(self.late.len(), CellWorld::late);
        (0..late).for_each(|index| add(What::Lands, index, 0));
        (0..self.late_datagrams.len()).for_each(|index| add(What::Delivered, index, 0));
        if self.slot.entry().is_some() || self.cells.as_ref().is_some_and(CellWorld::exists) {
            add(What::Deleted, 0, 0);
            add(What::Vacated, 0, 0);
            add(What::Overwritten, 0, 0);
            add(What::Garbled, 0, 0);
        }
        // Only a request that arrives notices a promotion, so it may as well come just before one.
        let has_not_arrived = |actor: &Actor| actor.call.as_ref().is_some_and(|call| call.answer.is_none());
        let mut actors = self.processes.iter().flat_map(|process| &process.actors);
        let matters = !self.late.is_empty() || actors.any(has_not_arrived);
        if let Some(servers) = &self.servers {
            for standby in servers.standbys() {
                if matters {
                    add(What::Promotes, standby, 0);
                }
                if servers.lags(standby) {
                    add(What::Replicates, standby, 0);
                }
            }
        }
        events
    }

    fn advance(&mut self) {
        let next = self.due().iter().map(|(after, _)| *after).min().unwrap_or(0);
        self.now += next;
        let is_exact = |process: &Process| (next * process.rate).is_multiple_of(10);
        // The TTL of a placeholder for a name without records is no multiple, and a nanosecond is no danger.
        assert!(
            self.cells.is_some() || self.processes.iter().all(is_exact),
            "{next} ns is no whole number of nanoseconds on each clock"
        );
        for process in &mut self.processes {
            if !process.is_paused || !self.around.drops(Assumption::Suspend) {
                process.clock = process.clock.after(Duration::from_nanos(next * process.rate / 10));
            }
        }
    }

    pub(super) fn occur(&mut self, event: Event, notes: &mut Notes) {
        let Event { what, process: number, actor } = event;
        let fate = what.fate();
        if matches!(what, What::TimePasses | What::Woken | What::Killed | What::Unanswered | What::Late)
            || fate.is_some()
        {
            self.advance();
        }
        let around = Arc::clone(&self.around);
        let cx = &mut Context { around: &around, notes };
        cx.notes.tell(|| self.told(event));
        self.spend(what, cx);
        around.set_incarnations(self.incarnations);
        let primary = self.servers.as_ref().map(|servers| servers.servers[servers.primary].clone());
        match what {
            What::TimePasses => {}
            What::Resume => self.processes[number].is_paused = false,
            What::Mend => self.processes[number].is_cut = false,
            What::Cut => self.processes[number].is_cut = true,
            What::Pause => {
                self.processes[number].is_paused = true;
                // Its answers wait as long as it does.
                self.processes[number].calls().for_each(|call| call.is_slow = true);
            }
            What::Slow => {
                let call = &mut self.processes[number].actors[actor].call;
                call.iter_mut().for_each(|call| call.is_slow = true);
            }
            What::Crash => self.die(number, cx),
            What::Killed => {
                if self.processes[number].leading().is_some_and(|leading| !leading.is_ending) {
                    cx.notes.reach("a kill while working");
                    if self.processes[number]
                        .leading()
                        .is_some_and(|leading| leading.dead_at() < leading.kill_at)
                    {
                        cx.notes.reach("a kill at the deadline of the support");
                    }
                }
                self.die(number, cx);
            }
            What::Deleted if self.cells.is_some() => {
                self.cells.iter_mut().for_each(CellWorld::delete);
            }
            What::Overwritten => self.overwritten(cx),
            What::Garbled => self.cells.iter_mut().for_each(CellWorld::garble),
            What::Deleted | What::Vacated => {
                let last_epoch = self.slot.last_epoch().filter(|_| what == What::Vacated);
                self.slot = Slot::Vacant(Vacant { last_epoch });
                self.is_foreign = true;
                self.last_claim = self.last_claim.filter(|_| what == What::Vacated);
            }
            What::Lands if self.cells.is_some() => self.cell_lands(number, cx),
            What::Lands => {
                let request = self.late.remove(number);
                if self.servers.is_some() {
                    self.lands_at_servers(number, &request, cx);
                } else if self.arrive(&request, cx).0.is_none() {
                    cx.notes.reach("a late write that applies");
                }
            }
            What::Replicates => self.servers.iter_mut().for_each(|servers| servers.replicate(number)),
            What::Promotes => self.promoted(number, cx),
            What::Arrives => self.arrives(number, actor, cx),
            What::Answered | What::Twice => {
                if what == What::Twice {
                    self.keep(number, actor, cx);
                }
                self.arrives(number, actor, cx);
                let call = &mut self.processes[number].actors[actor].call;
                if let Some(answer) = call.as_mut().and_then(|call| call.answer.take()) {
                    self.processes[number].answered(actor, answer, cx);
                }
            }
            What::NotApplied | What::Replaced | What::Broken | What::Unanswered | What::Late => {
                if matches!(what, What::Late | What::Broken) {
                    self.keep(number, actor, cx);
                }
                let failure = match what {
                    What::NotApplied => Failure::NotApplied,
                    What::Replaced => Failure::Replaced,
                    _ => Failure::Unanswered,
                };
                self.processes[number].answered(actor, Err(failure), cx);
            }
            What::Woken => self.processes[number].woken(actor, cx),
            What::PingLost
            | What::PingLate
            | What::PingTwice
            | What::AnswerLost
            | What::AnswerLate
            | What::AnswerTwice => self.processes[number].woken(actor, cx),
            What::Tightened => self.processes[number].tightened(cx),
            What::TightensLate => {
                self.processes[number].supported().into_iter().for_each(|support| support.is_slow = true);
            }
            What::Link => self.processes[number].is_unlinked = false,
            What::Unlink => self.processes[number].is_unlinked = true,
            What::Leaves => self.processes[number].leave(actor, cx),
            What::Delivered => {
                let (from, datagram) = self.late_datagrams.remove(number);
                self.deliver(from, &datagram, cx);
            }
            What::Release if self.around.succeeds => {
                self.processes[number].support(SupportEvent::Stop, cx);
            }
            What::HandBack | What::Release => {
                self.processes[number].works_on |= around.drops(Assumption::HandedBack);
                self.processes[number].hand_back(actor, cx);
            }
        }
        self.exchange(fate, cx);
        self.incarnations = around.incarnations();
        self.observe(cx);
        if what != What::Replicates {
            self.servers.iter_mut().for_each(|servers| servers.note_change(primary.as_ref()));
        }
        self.observe_servers(cx);
    }

    /// The process ends, and is started again. A write that it has sent may still arrive.
    pub(super) fn die(&mut self, number: usize, cx: &mut Context<'_>) {
        let process = &mut self.processes[number];
        let calls = process.actors.drain(..).filter_map(|actor| actor.call);
        let sent: Vec<_> = calls.filter(|call| call.answer.is_none()).map(|call| call.request).collect();
        (process.is_paused, process.works_on) = (false, false);
        (process.leaves, process.has_left) = (false, false);
        process.begin(&self.around);
        for request in sent {
            if matches!(request, Request::Write(_)) && self.may(What::Late) {
                self.spend(What::Late, cx);
                if self.cells.is_some() {
                    let _unanswered = self.arrive_at_cells(number, &request, true, cx);
                } else {
                    self.keep_late(number, request);
                }
            }
        }
        self.cells.iter_mut().for_each(|cells| cells.forget(number));
        self.servers.iter_mut().for_each(|servers| servers.open(number));
    }

    pub(super) fn keep_late(&mut self, number: usize, request: Request) {
        if let Some(servers) = &mut self.servers {
            servers.late.push(servers.handles[number].witness);
        }
        self.late.push(request);
    }

    fn overwritten(&mut self, cx: &mut Context<'_>) {
        let Some(ttl) = self.processes.iter().map(|process| process.ttl).max() else { return };
        let foreign = |stands: &Slot| {
            let version = Version { incarnation: Incarnation::from_bytes([255; 16]), write: 0 };
            let epoch = Epoch::following(stands.last_epoch(), Duration::ZERO).ok()?;
            Some(Entry { holder: Holder::new("another program").ok()?, version, ttl, epoch })
        };
        if let Some(cells) = &mut self.cells {
            cells.overwrite(self.now, cx.around, foreign);
            self.observe_cells(cx);
        } else if let Some(entry) = foreign(&self.slot) {
            self.arrive(&Request::Write(Step::claim(&self.slot, &entry)), cx);
        }
    }

    /// Keeps a write under way, which then arrives late or never.
    fn keep(&mut self, number: usize, actor: usize, cx: &mut Context<'_>) {
        let call = self.processes[number].actors[actor].call.as_ref();
        let under_way = |call: &&Call| matches!(call.request, Request::Write(_)) && call.answer.is_none();
        let kept = call.filter(under_way).map(|call| call.request.clone());
        match kept {
            Some(request) if self.cells.is_some() => {
                let _unanswered = self.arrive_at_cells(number, &request, true, cx);
            }
            Some(request) => self.keep_late(number, request),
            None => {}
        }
    }

    fn arrives(&mut self, number: usize, actor: usize, cx: &mut Context<'_>) {
        let call = self.processes[number].actors[actor].call.as_ref();
        let Some(call) = call.filter(|call| call.answer.is_none()) else { return };
        let request = call.request.clone();
        let answer = match self.cells {
            Some(_) => self.arrive_at_cells(number, &request, false, cx),
            None if self.servers.is_some() => self.arrive_at_servers(number, &request, cx),
            None => Ok(self.arrive(&request, cx)),
        };
        self.processes[number].actors[actor]
            .call
            .iter_mut()
            .for_each(|call| call.answer = Some(answer.clone()));
    }

    pub(super) fn arrive(&mut self, request: &Request, cx: &mut Context<'_>) -> Answer {
        let Request::Write(step) = request else { return Answer(Some(self.slot.clone())) };
        let Ok(decision) = decide(&SlotAlone(&self.slot), step);
        let decision = match step {
            Step::Claim { to, .. } | Step::Renew { to, .. } if self.around.drops(Assumption::Conditions) => {
                Decision::Hold(to)
            }
            _ => decision,
        };
        self.slot = match (decision, step) {
            (Decision::Hold(to), _) => {
                if let Step::Claim { from, .. } = step {
                    cx.notes.reach(match from {
                        Slot::Held { .. } => "a take-over after expiry",
                        Slot::Vacant(_) => "a claim of a vacant slot",
                    });
                    self.claimed(to, cx);
                } else {
                    self.landed(to.epoch, to.incarnation(), cx);
                }
                for sent in self.processes.iter_mut().flat_map(|process| &mut process.sent) {
                    sent.applied |= sent.version == to.version;
                }
                Slot::Held { entry: to.clone(), proven_age: None }
            }
            (Decision::Vacate(epoch), Step::Release { incarnation, .. }) => {
                self.landed(epoch, *incarnation, cx);
                Slot::Vacant(Vacant { last_epoch: Some(epoch) })
            }
            (Decision::Refuse(CurrentState::Slot(stands)), _) => {
                if let (Step::Release { epoch, .. }, Some(entry)) = (step, stands.entry())
                    && entry.epoch > *epoch
                {
                    cx.notes.reach("a release after a take-over");
                }
                cx.notes.tell(|| format!("    the storage refuses {}: {stands}", request.told()));
                return Answer(Some(stands));
            }
            // Of documents and settings, which are not checked.
            _ => return Answer(None),
        };
        cx.notes.tell(|| format!("    the storage applies {}", request.told()));
        Answer(None)
    }

    fn told(&self, Event { what, process, actor }: Event) -> String {
        let subject = match what {
            What::TimePasses | What::Deleted | What::Vacated | What::Overwritten | What::Garbled => {
                String::new()
            }
            What::Replicates | What::Promotes => format!("server {}", process + 1),
            What::Lands if self.cells.is_some() => "a write of a cell".into(),
            What::Lands => self.late[process].told(),
            What::Delivered => format!("{:?}", self.late_datagrams[process].1),
            What::Woken
            | What::Killed
            | What::Resume
            | What::Mend
            | What::HandBack
            | What::Release
            | What::Crash
            | What::Pause
            | What::Tightened
            | What::TightensLate
            | What::Link
            | What::Unlink
            | What::Leaves
            | What::PingLost
            | What::PingLate
            | What::PingTwice
            | What::AnswerLost
            | What::AnswerLate
            | What::AnswerTwice
            | What::Cut => self.processes[process].name.into(),
            _ => {
                let process = &self.processes[process];
                let call = process.actors[actor].call.as_ref();
                format!("{} of {}", call.map_or(String::new(), |call| call.request.told()), process.name)
            }
        };
        format!("{:8.4} s  {subject}{}", self.now as f64 / 1e9, what.told())
    }
}

fn messages(actor: &Actor, call: &Call) -> impl Iterator<Item = What> {
    let is_new_write = matches!(call.request, Request::Write(_)) && call.answer.is_none();
    let all = [
        (What::Answered, true),
        (What::Slow, !call.is_slow),
        (What::Arrives, call.is_slow && call.answer.is_none()),
        (What::Twice, is_new_write),
        (What::NotApplied, is_new_write),
        (What::Broken, true),
        (What::Replaced, !matches!(actor.kind, Kind::Releasing(_))),
    ];
    all.into_iter().filter_map(|(what, may)| may.then_some(what))
}
