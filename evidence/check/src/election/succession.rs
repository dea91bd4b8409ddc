//! A leader with its successor around the shipped values: datagrams, guardian and keeper, and the second kill deadline.
//! A datagram arrives at once, unless a fault of the timer that caused it loses or delays it. One that is late, and one
//! to a process that is stopped, arrives at any time or never.

use super::{
    message::{Datagram, Request},
    process::{Actor, Kind, Process, SUPPORT},
    settings::{Context, Surroundings, share_of},
    support::{Supported, period},
    world::World,
};
use crate::search::Notes;
use ielections::{
    Ttl,
    protocol::{
        LeaseEvent,
        successor::{Successor, SuccessorEvent, SuccessorStep, SupportEvent, SupportStep},
    },
    timing::SupportPeriod,
};
use std::mem;
use vvm_clock::Instant;
use vvm_storage::Step;

/// How many datagrams wait for a process that is stopped, or are late, at most.
const LATE: usize = 2;

/// The shipped share of the support period after which a leader is dead.
const KILL: u64 = 800;

/// Moves a deadline from the shipped share to another one.
fn moved(kill_at: Instant, ttl: Ttl, around: &Surroundings) -> Instant {
    let Some((share, period)) = around.settings.kill_share.zip(Ttl::new(ttl.get() / 4).ok()) else {
        return kill_at;
    };
    kill_at.before(share_of(period, KILL)).after(share_of(period, share))
}

impl Process {
    pub(super) fn supported(&mut self) -> Option<&mut Supported> {
        self.actors.iter_mut().find_map(|actor| match &mut actor.kind {
            Kind::Leading(leading) => leading.support.as_deref_mut(),
            Kind::Campaigning(_) | Kind::Releasing(_) | Kind::Succeeding(_) => None,
        })
    }

    /// Guardian and keeper enforce the deadline, and say so.
    pub(super) fn tightened(&mut self, cx: &mut Context<'_>) {
        let (ttl, around) = (self.ttl, cx.around);
        let Some(support) = self.supported() else { return };
        let Some(asked) = support.asked.take() else { return };
        support.kill_at = Some(moved(asked, ttl, around));
        self.support(SupportEvent::Tightened(asked), cx);
    }

    /// Delivers an event to the support of a leader, and carries out what it says.
    pub(super) fn support(&mut self, mut event: SupportEvent, cx: &mut Context<'_>) {
        let (now, ttl) = (self.clock, self.ttl);
        loop {
            let leads =
                |actor: &Actor| matches!(&actor.kind, Kind::Leading(leading) if leading.support.is_some());
            let Some(index) = self.actors.iter().position(leads) else { return };
            let Kind::Leading(leading) = &mut self.actors[index].kind else { return };
            let Some(support) = leading.support.as_deref_mut() else { return };
            let was_named = support.support.successor().is_some();
            let step = support.support.on(now, event, &mut leading.lease);
            if !matches!(step, SupportStep::Sleep(_)) {
                cx.notes.tell(|| format!("    {} as leader: {step:?}", self.name));
            }
            if let (SupportEvent::Confirmed(_), SupportStep::Renew) = (event, step) {
                cx.notes.reach("a confirmation below the bound");
            }
            match step {
                SupportStep::Sleep(until) => {
                    support.wake_at = until;
                    return;
                }
                SupportStep::Send(ping) => {
                    if ping.below.is_some() {
                        cx.notes.reach("a named successor");
                    }
                    self.outbox.push(Datagram::ToStandby(ping));
                }
                SupportStep::Arm(kill_at) => (support.asked, support.is_slow) = (Some(kill_at), false),
                SupportStep::Extend(kill_at) => {
                    let kill_at = moved(kill_at, ttl, cx.around);
                    support.kill_at = support.kill_at.map(|before| before.max(kill_at));
                }
                SupportStep::Disarm(_) => {
                    cx.notes.reach(if was_named {
                        "a withdrawal that is confirmed"
                    } else {
                        "a deadline that is not tightened in time"
                    });
                    (support.asked, support.kill_at) = (None, None);
                }
                SupportStep::Renew => self.lease(index, LeaseEvent::Due, cx),
                SupportStep::MayStop => {
                    cx.notes.reach("a stop after a withdrawal");
                    leading.may_stop = true;
                }
                SupportStep::Lost => {
                    cx.notes.reach("a loss of support");
                    (leading.is_lost, support.wake_at) = (true, Instant::NEVER);
                    self.actors[index].wake_at = Instant::NEVER;
                    if cx.around.is_undisturbed {
                        cx.violated("N4", || format!("{} is lost beside a healthy storage", self.name));
                    }
                    return;
                }
            }
            event = SupportEvent::Woken;
        }
    }

    pub(super) fn leave(&mut self, actor: usize, cx: &mut Context<'_>) {
        self.leaves = true;
        self.succeed(actor, SuccessorEvent::Stop, cx);
    }

    pub(super) fn succeed(&mut self, actor: usize, mut event: SuccessorEvent, cx: &mut Context<'_>) {
        let now = self.clock;
        loop {
            let Kind::Succeeding(successor) = &mut self.actors[actor].kind else { return };
            let step = successor.on(now, event);
            let (request, timeout) = match step {
                SuccessorStep::Sleep(until) => {
                    self.actors[actor].wake_at = until;
                    return;
                }
                SuccessorStep::Reply(message) => {
                    cx.notes.tell(|| format!("    {} as standby: {message:?}", self.name));
                    self.outbox.push(Datagram::ToLeader(message));
                    event = SuccessorEvent::Woken;
                    continue;
                }
                SuccessorStep::Send => {
                    event = SuccessorEvent::MaySend;
                    continue;
                }
                SuccessorStep::Read(timeout) => (Request::Get, timeout),
                SuccessorStep::TakeOver(from, to, timeout) => {
                    let from = ielections::Slot::Held { entry: from, proven_age: None };
                    (Request::Write(Step::claim(&from, &to)), timeout)
                }
                SuccessorStep::Renew(held, to, timeout) => (Request::Write(Step::renew(&held, &to)), timeout),
                SuccessorStep::Won(entry, sent_at) => {
                    cx.notes.reach("a leader by right");
                    return self.won(actor, entry, sent_at, cx);
                }
                SuccessorStep::MayStop => {
                    self.has_left = true;
                    return;
                }
            };
            self.actors[actor].wake_at = Instant::NEVER;
            return self.call(actor, request, timeout, cx);
        }
    }

    fn receive(&mut self, datagram: &Datagram, cx: &mut Context<'_>) {
        match datagram {
            Datagram::ToLeader(message) => self.support(SupportEvent::Received(*message), cx),
            Datagram::ToStandby(ping) => {
                let succeeds = |actor: &Actor| matches!(actor.kind, Kind::Succeeding(_));
                if let Some(actor) = self.actors.iter().position(succeeds) {
                    self.succeed(actor, SuccessorEvent::Received(*ping), cx);
                }
            }
        }
    }
}

impl World {
    /// Whether the timer of an actor may cause datagrams.
    pub(super) fn may_send_datagrams(&self, process: usize, actor: usize) -> bool {
        let process = &self.processes[process];
        let is_successor = |actor: &Actor| matches!(actor.kind, Kind::Succeeding(_));
        actor == SUPPORT || process.actors.get(actor).is_some_and(is_successor)
    }

    /// Delivers what was sent, and what is sent as an answer. One of these datagrams may have another fate.
    pub(super) fn exchange(&mut self, fate: Option<(usize, bool, bool)>, cx: &mut Context<'_>) {
        if !self.around.succeeds {
            return;
        }
        let mut sent = 0;
        while let Some(from) = self.processes.iter().position(|process| !process.outbox.is_empty()) {
            for datagram in mem::take(&mut self.processes[from].outbox) {
                let (_, arrives, is_late) =
                    fate.filter(|(which, ..)| *which == sent).unwrap_or((0, true, false));
                sent += 1;
                if is_late && !self.processes[from].is_cut && self.late_datagrams.len() < LATE {
                    self.late_datagrams.push((from, datagram.clone()));
                }
                if arrives {
                    self.deliver(from, &datagram, cx);
                }
            }
        }
        for number in 0..self.processes.len() {
            for request in mem::take(&mut self.processes[number].dropped) {
                self.keep_late(number, request);
            }
            if self.processes[number].has_left {
                cx.notes.reach("a standby that has left");
                self.die(number, cx);
            }
        }
    }

    /// A datagram arrives at all others: only the one that it is for heeds it (N8).
    pub(super) fn deliver(&mut self, from: usize, datagram: &Datagram, cx: &mut Context<'_>) {
        let is_cut = |process: &Process| process.is_cut || process.is_unlinked;
        for to in (0..self.processes.len()).filter(|to| *to != from) {
            if is_cut(&self.processes[from]) || is_cut(&self.processes[to]) {
                continue;
            }
            if !self.processes[to].is_paused {
                self.processes[to].receive(datagram, cx);
            } else if self.late_datagrams.len() < LATE {
                self.late_datagrams.push((from, datagram.clone()));
            }
        }
    }

    /// Runs fairly until the first leader has named a successor.
    pub(super) fn name_a_successor(&mut self) {
        let (faults, left) = (mem::take(&mut self.faults), mem::take(&mut self.left));
        let is_named = |process: &mut Process| {
            process.supported().is_some_and(|support| support.support.successor().is_some())
        };
        while !self.processes.iter_mut().any(is_named) {
            let Some(next) = self.possible().first().copied() else { break };
            self.occur(next, &mut Notes::default());
        }
        (self.faults, self.left) = (faults, left);
    }

    /// If a named successor loses its leader for good, it leads within three support periods.
    pub(super) fn a_successor_is_prompt(&self) -> Result<(), String> {
        let Some(entry) = self.slot.entry() else { return Ok(()) };
        let Some(period) = period(entry.ttl).map(SupportPeriod::get) else { return Ok(()) };
        let has_right = |process: &Process| {
            let now = process.clock;
            let named = |successor: &Successor| successor.named_by(now);
            let mut named = process.actors.iter().filter_map(|actor| match &actor.kind {
                Kind::Succeeding(successor) => named(successor),
                _ => None,
            });
            !process.leaves
                && named.any(|(pairing, below)| {
                    entry.is_of(pairing.incarnation, pairing.epoch) && entry.version.write < below
                })
        };
        if !self.processes.iter().any(has_right) {
            return Ok(());
        }
        let mut healed = self.clone();
        healed.heal();
        for process in healed.processes.iter_mut().filter(|process| process.leading().is_some()) {
            process.actors.clear();
        }
        let leads = healed.has_a_leader_within(period * 3);
        if leads {
            Ok(())
        } else {
            Err("the successor does not lead within 3 P after the loss of its leader".into())
        }
    }
}
