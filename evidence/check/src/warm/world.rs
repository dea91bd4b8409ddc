//! [`World`]: a host with its machine, a tree with two participants, and a lease.

use crate::{
    Assumption,
    search::{Model, Notes, happenings},
};
use ielections::Epoch;
use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
    time::Duration,
};
use vvm_cli::warm::{
    machine::{AfterStop, AppEvent, Effect, EndReason, Limits, Machine, Term, Times},
    protocol::{Decimal, FromApp, Reason, ToApp, VERSION},
};
use vvm_clock::Instant;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// From a confirmed renewal to the kill, and from the stop of the work to the kill: 0.8 and 0.15 TTL of 20 s.
const KILL: Duration = seconds(16);
const STOPPING: Duration = seconds(3);
/// A claim counts as fresh for a quarter of the TTL.
const FRESH: Duration = seconds(5);
const LIMITS: Limits =
    Limits { start: seconds(4), alive: Some(seconds(6)), stop: seconds(2), least_to_stop: seconds(1) };

const TREES: u64 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Happens {
    what: What,
    /// The number of the participant, if it happens to one.
    at: usize,
}

happenings! {
    /// What may happen, and how a story tells it before the number of the participant.
    What {
        Delivers = "the host reads a message of participant",
        Receives = "a message reaches participant",
        Finishes = "the work has stopped in participant",
        Confirms = "guardian and keeper confirm the deadline",
        TreeEnds = "the tree has ended, as ordered",
        TreeGone = "the keeper says that no process is left",
        Ticks = "a time limit passes",
        NotConfirmed = "the deadline is not confirmed in time",
        KilledAtDeadline = "guardian and keeper kill at the deadline",
        Connects = "participant connects, and is ready:",
        Wins = "the host wins a slot",
        TimePasses = "time passes",
        // From here on: bounded in number, and together.
        StepsDown = "an operator asks for a step-down",
        IsLost = "the leadership is lost",
        Renews = "a renewal is confirmed",
        Quits = "vvm is to end",
        IsUnready = "not ready any more: participant",
        Resigns = "participant resigns:",
        StopsUnasked = "participant stops unasked:",
        SaysTwice = "participant says stopped twice:",
        TreeDies = "all processes of the tree die",
        Dies = "participant dies:",
        Closes = "the work goes on, and the connection is closed of participant",
        Garbles = "no message is sent by participant",
        WinsLate = "a claim that was under way wins a slot",
        Hangs = "participant hangs:",
        Lies = "stopped is said, and the work goes on, in participant",
        ChildSays = "a forked child says stopped over the connection of participant",
    }
}

#[derive(Clone, Default, Hash)]
struct Participant {
    is_connected: bool,
    is_dead: bool,
    hangs: bool,
    /// What the host has sent and it has not read: `lead`, and else `stop`.
    inbox: VecDeque<(Epoch, bool)>,
    /// What it has sent and the host has not read.
    outbox: VecDeque<Sent>,
    works: Option<Epoch>,
    is_asked: bool,
}

#[derive(Clone, Hash)]
enum Sent {
    Message(FromApp),
    Garbage,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Tree {
    Lives,
    IsEnding,
    IsGone,
}

#[derive(Clone)]
pub(crate) struct World {
    now: Instant,
    machine: Machine,
    after_stop: AfterStop,
    participants: [Participant; 2],
    tree: Tree,
    trees: u64,
    /// The leadership that is not over, its kill deadline, and until when its claim is fresh.
    led: Option<(Epoch, Instant, Instant)>,
    epochs: u64,
    led_before: u8,
    /// Whether `lead` was sent under it.
    has_led: bool,
    in_force: Option<Instant>,
    is_ready: bool,
    quits: bool,
    left: Vec<(What, u8)>,
    faults: u8,
    dropped: Option<Assumption>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (self.now, &self.machine, &self.participants, self.tree, self.trees).hash(to);
        (self.led, self.epochs, self.led_before, self.has_led, self.in_force).hash(to);
        (self.is_ready, self.quits, &self.left, self.faults).hash(to);
    }
}

fn epoch(number: u64) -> Epoch {
    // Numbers begin with 1.
    Epoch::new(number.max(1)).unwrap_or_else(|_| unreachable!("a small number is an epoch"))
}

impl World {
    pub(super) fn new(
        after_stop: AfterStop,
        left: Vec<(What, u8)>,
        faults: u8,
        dropped: Option<Assumption>,
    ) -> Self {
        Self {
            now: Instant::ORIGIN.after(seconds(100)),
            machine: Machine::new(LIMITS, after_stop),
            after_stop,
            participants: Default::default(),
            tree: Tree::Lives,
            trees: 1,
            led: None,
            epochs: 0,
            led_before: 0,
            has_led: false,
            in_force: None,
            is_ready: false,
            quits: false,
            left,
            faults,
            dropped,
        }
    }

    fn drops(&self, assumption: Assumption) -> bool {
        self.dropped == Some(assumption)
    }

    fn connection(&self, at: usize) -> u64 {
        self.trees * 2 + at as u64
    }

    fn may(&self, what: What) -> bool {
        let left = || self.left.iter().find(|(bounded, _)| *bounded == what).map_or(0, |(_, left)| *left);
        let is_fault = what as usize >= What::StepsDown as usize;
        (what != What::Wins && (what as usize) < What::StepsDown as usize || left() > 0)
            && (!is_fault || self.faults > 0)
    }

    fn spend(&mut self, what: What) {
        self.faults -= u8::from(what as usize >= What::StepsDown as usize);
        self.left.iter_mut().filter(|(bounded, _)| *bounded == what).for_each(|(_, left)| *left -= 1);
    }

    fn due(&self) -> [(Instant, What); 4] {
        let fresh = self.led.filter(|_| self.machine.is_arming()).map(|(_, _, until)| until);
        let works = self.participants.iter().any(|participant| participant.works.is_some());
        let beyond = self.led.filter(|_| works).map(|(_, kill_at, _)| kill_at.after(seconds(1)));
        let enforced = self.in_force.filter(|_| self.tree != Tree::IsGone);
        [
            (self.machine.due(), What::Ticks),
            (fresh.unwrap_or(Instant::NEVER), What::NotConfirmed),
            (enforced.unwrap_or(Instant::NEVER), What::KilledAtDeadline),
            (beyond.unwrap_or(Instant::NEVER), What::TimePasses),
        ]
    }

    /// Whether it can act under a leadership, now or by a message that is under way.
    fn works(participant: &Participant) -> bool {
        participant.works.is_some() || participant.inbox.iter().any(|(_, leads)| *leads)
    }

    fn on(&mut self, event: AppEvent, notes: &mut Notes) {
        let effects = self.machine.on(self.now, event);
        for effect in effects {
            notes.tell(|| format!("    {effect:?}"));
            self.apply(effect, notes);
        }
    }

    fn apply(&mut self, effect: Effect, notes: &mut Notes) {
        match effect {
            Effect::Send(to, message) => self.send(to, &message, notes),
            Effect::Close(connection) => {
                let at = (connection % 2) as usize;
                // What comes later is not read.
                self.participants[at].outbox.clear();
                self.participants[at].is_connected = false;
            }
            Effect::Ready(is_ready) => {
                self.is_ready = is_ready;
                if is_ready && (self.quits || self.tree == Tree::IsEnding) {
                    notes.violated("W7", || "the host campaigns for a tree that is being ended".into());
                }
            }
            Effect::Ends(ending) => notes.reach(match ending {
                EndReason::Asked(_) => "asked to stop",
                EndReason::Stopped => "stopped unasked",
                // No app of this model says it: it takes the way of a lost connection.
                EndReason::Failed(_) | EndReason::Gone => "a lost connection",
                EndReason::NotLeading => "no leading in time",
                EndReason::NotAlive => "no alive in time",
                EndReason::NotStopped => "no stopped in time",
                EndReason::NotInForce => "a deadline that is not confirmed",
                EndReason::Garbled => "a line that is no message",
            }),
            Effect::Over => self.over(notes),
            Effect::TermTree | Effect::KillTree if self.tree == Tree::Lives => self.tree = Tree::IsEnding,
            Effect::TermTree | Effect::KillTree | Effect::Greet(_) | Effect::Leads | Effect::Keeps => {}
        }
    }

    fn send(&mut self, to: u64, message: &ToApp, notes: &mut Notes) {
        let at = (to % 2) as usize;
        match message {
            ToApp::Lead { epoch: Decimal(epoch), .. } => {
                notes.reach("lead");
                notes.reach(if at == 1 { "a second participant" } else { "the first participant" });
                if self.led_before > 1 {
                    notes.reach("the second leadership of a kept tree");
                }
                let deadline = self.led.map(|(_, kill_at, _)| kill_at);
                if self.in_force.is_none() || self.in_force > deadline {
                    notes.violated("I4", || "lead is sent before the deadline is in force".into());
                }
                if self.tree == Tree::IsEnding {
                    notes.violated("W7", || "lead is sent to a tree that is being ended".into());
                }
                if self.participants.iter().any(Self::works) {
                    notes.violated("I1", || "lead is sent to a second participant".into());
                }
                self.has_led = true;
                self.reaches(at, *epoch, true);
            }
            ToApp::Stop { epoch: Decimal(epoch), .. } => {
                self.reaches(at, *epoch, false);
            }
            _ => {}
        }
    }

    /// A message is under way, unless nothing is left that could read it.
    fn reaches(&mut self, at: usize, epoch: Epoch, leads: bool) {
        if self.tree != Tree::IsGone && !self.participants[at].is_dead {
            self.participants[at].inbox.push_back((epoch, leads));
        }
    }

    /// The machine allows the release: nothing works any more (I6).
    fn over(&mut self, notes: &mut Notes) {
        if self.led.take().is_none() {
            notes.violated("I6", || "a leadership is released twice".into());
        }
        if self.participants.iter().any(Self::works) {
            notes.violated("I6", || "the record is released while the app works".into());
        }
        notes.reach(match (self.has_led, self.tree) {
            (false, _) => "a release without lead",
            (true, Tree::IsGone) => "a release with proof",
            (true, _) => "a release by the app's word",
        });
        (self.in_force, self.has_led) = (None, false);
    }

    fn says(&mut self, at: usize, message: FromApp) {
        if self.participants[at].is_connected {
            self.participants[at].outbox.push_back(Sent::Message(message));
        }
    }

    fn reads(&mut self, at: usize, notes: &mut Notes) {
        let connection = self.connection(at);
        let Some(sent) = self.participants[at].outbox.pop_front() else { return };
        let event = match sent {
            Sent::Message(message) => AppEvent::Said(connection, message),
            Sent::Garbage => AppEvent::Garbled(connection, "no JSON".into()),
            Sent::End => AppEvent::Closed(connection),
        };
        self.on(event, notes);
    }

    fn tree_ends(&mut self) {
        self.tree = Tree::IsGone;
        for participant in &mut self.participants {
            participant.is_dead = true;
            if participant.is_connected {
                participant.outbox.push_back(Sent::End);
            }
            participant.inbox.clear();
            participant.works = None;
        }
    }

    fn wins(&mut self, notes: &mut Notes) {
        if !self.is_ready {
            notes.reach("a slot that is won while nothing is ready");
        }
        self.epochs += 1;
        self.led_before += 1;
        let (epoch, kill_at) = (epoch(self.epochs), self.now.after(KILL));
        self.led = Some((epoch, kill_at, self.now.after(FRESH)));
        self.on(AppEvent::Won(Term { slot: 1, epoch }, times(kill_at)), notes);
    }

    /// The kill deadline moves, and with it what guardian and keeper enforce.
    fn moves(&mut self, kill_at: Instant, notes: &mut Notes) {
        if let Some((_, deadline, _)) = &mut self.led {
            *deadline = kill_at;
            self.in_force = self.in_force.map(|_| kill_at);
            self.on(AppEvent::Moved(times(kill_at)), notes);
        }
    }

    fn tree_gone(&mut self, notes: &mut Notes) {
        for at in 0..2 {
            while !self.participants[at].outbox.is_empty() {
                self.reads(at, notes);
            }
        }
        self.on(AppEvent::TreeGone, notes);
        if self.led.is_some() {
            notes.violated("progress", || "the tree is gone, and the record is kept".into());
        }
        if !self.quits && self.trees < TREES {
            notes.reach("a second tree");
            self.trees += 1;
            self.led_before = 0;
            self.participants = Default::default();
            self.machine = Machine::new(LIMITS, self.after_stop);
            (self.tree, self.is_ready) = (Tree::Lives, false);
        } else {
            // No other one follows.
            self.trees = TREES + 1;
        }
    }

    fn advance(&mut self) {
        let next = self.due().into_iter().map(|(at, _)| at).min().unwrap_or(Instant::NEVER);
        if next != Instant::NEVER {
            self.now = self.now.max(next);
        }
    }
}

fn times(kill_at: Instant) -> Times {
    Times { stop_by: kill_at.before(STOPPING), kill_at }
}

impl Model for World {
    type Event = Happens;

    fn events(&self) -> Vec<Happens> {
        let mut events = Vec::new();
        if self.trees > TREES {
            return events;
        }
        let mut add = |what, at| {
            if self.may(what) {
                events.push(Happens { what, at });
            }
        };
        let has_processes = self.tree != Tree::IsGone;
        for (at, participant) in self.participants.iter().enumerate() {
            if !participant.outbox.is_empty() {
                add(What::Delivers, at);
            }
            if !has_processes {
                continue;
            }
            if !participant.inbox.is_empty() && !participant.hangs {
                add(What::Receives, at);
            }
            if participant.works.is_some() && participant.is_asked && !participant.hangs {
                add(What::Finishes, at);
            }
        }
        match self.tree {
            Tree::IsEnding => add(What::TreeEnds, 0),
            Tree::IsGone => add(What::TreeGone, 0),
            Tree::Lives => {}
        }
        if self.drops(Assumption::Proof) && self.tree == Tree::IsEnding {
            add(What::TreeGone, 0);
        }
        if self.machine.is_arming() {
            add(What::Confirms, 0);
        }
        let due = self.due();
        let next = due.iter().map(|(at, _)| *at).min().unwrap_or(Instant::NEVER);
        for (at, what) in due {
            if at != Instant::NEVER && at <= self.now.max(next) {
                add(what, 0);
            }
        }
        if has_processes {
            // A participant connects once.
            let is_new =
                |at: usize| !self.participants[at].is_connected && self.participants[at].inbox.is_empty();
            for at in (0..2)
                .filter(|at| is_new(*at) && !self.participants[*at].hangs && !self.participants[*at].is_dead)
            {
                let was_here = self.participants[at].works.is_some() || self.participants[at].is_asked;
                let in_order = at == 0 || self.participants[0].is_connected || self.participants[0].is_asked;
                if !was_here && in_order && self.tree == Tree::Lives {
                    add(What::Connects, at);
                }
            }
        }
        if self.led.is_none() && !self.quits {
            if self.is_ready {
                add(What::Wins, 0);
            } else if self.epochs > 0 {
                add(What::WinsLate, 0);
            }
        }
        if self.led.is_some() {
            add(What::StepsDown, 0);
            add(What::IsLost, 0);
            add(What::Renews, 0);
        }
        if !self.quits {
            add(What::Quits, 0);
        }
        if has_processes {
            add(What::TreeDies, 0);
        }
        for (at, participant) in self.participants.iter().enumerate().filter(|_| has_processes) {
            if participant.works.is_some() {
                add(What::Resigns, at);
                add(What::StopsUnasked, at);
                add(What::SaysTwice, at);
                add(What::Lies, at);
                add(What::ChildSays, at);
            }
            if participant.is_connected && !participant.is_dead {
                add(What::IsUnready, at);
                add(What::Dies, at);
                add(What::Closes, at);
                add(What::Garbles, at);
                add(What::Hangs, at);
            }
        }
        events
    }

    fn happen(&mut self, Happens { what, at }: Happens, notes: &mut Notes) {
        if matches!(what, What::Ticks | What::NotConfirmed | What::KilledAtDeadline | What::TimePasses) {
            self.advance();
        }
        notes.tell(|| {
            format!("{:6.1} s  {} {}", self.now.as_nanos() as f64 / 1e9 - 100.0, what.told(), at + 1)
        });
        self.spend(what);
        notes.reach(what.told());
        let working = self.participants[at].works;
        match what {
            What::Delivers => self.reads(at, notes),
            What::Receives => {
                let Some((epoch, leads)) = self.participants[at].inbox.pop_front() else { return };
                if leads {
                    self.participants[at].works = Some(epoch);
                    self.says(at, FromApp::Leading { epoch: Decimal(epoch) });
                } else {
                    self.participants[at].is_asked = true;
                }
            }
            What::Finishes | What::StopsUnasked | What::SaysTwice => {
                self.participants[at].works = None;
                self.participants[at].is_asked = false;
                for epoch in working.into_iter().cycle().take(1 + usize::from(what == What::SaysTwice)) {
                    self.says(at, FromApp::Stopped { epoch: Decimal(epoch) });
                }
            }
            What::Lies | What::ChildSays => {
                working
                    .into_iter()
                    .for_each(|epoch| self.says(at, FromApp::Stopped { epoch: Decimal(epoch) }));
            }
            What::Resigns => {
                working
                    .into_iter()
                    .for_each(|epoch| self.says(at, FromApp::Resign { epoch: Decimal(epoch) }));
            }
            What::IsUnready => self.says(at, FromApp::Ready { ready: false }),
            What::Connects => {
                self.participants[at].is_connected = true;
                let connection = self.connection(at);
                self.on(AppEvent::Connected(connection), notes);
                self.on(AppEvent::Said(connection, FromApp::Hello { version: VERSION }), notes);
                self.on(AppEvent::Said(connection, FromApp::Ready { ready: true }), notes);
            }
            What::Dies => {
                let participant = &mut self.participants[at];
                (participant.works, participant.is_dead) = (None, true);
                participant.inbox.clear();
                participant.outbox.push_back(Sent::End);
            }
            What::Closes => self.participants[at].outbox.push_back(Sent::End),
            What::Garbles => self.participants[at].outbox.push_back(Sent::Garbage),
            What::Hangs => self.participants[at].hangs = true,
            What::Confirms => {
                let enforces = !self.drops(Assumption::Confirmed);
                self.in_force = self.led.map(|(_, at, _)| at).filter(|_| enforces);
                if !enforces {
                    // The host believes it.
                    self.in_force = Some(Instant::ORIGIN);
                }
                self.on(AppEvent::InForce, notes);
                self.in_force = self.in_force.filter(|_| enforces);
            }
            What::Ticks => self.on(AppEvent::Tick, notes),
            What::NotConfirmed => self.on(AppEvent::NotInForce, notes),
            What::KilledAtDeadline => {
                notes.reach("a kill at the deadline");
                self.tree_ends();
            }
            What::TreeEnds | What::TreeDies => self.tree_ends(),
            What::TreeGone => self.tree_gone(notes),
            What::Wins | What::WinsLate => self.wins(notes),
            What::StepsDown => self.on(AppEvent::Stop(Reason::StepDown), notes),
            What::IsLost => {
                let kill_at = self.led.map_or(self.now, |(_, at, _)| at).min(self.now.after(STOPPING));
                self.moves(kill_at, notes);
                self.on(AppEvent::Stop(Reason::Lost), notes);
            }
            What::Renews => self.moves(self.now.after(KILL), notes),
            What::Quits => {
                self.quits = true;
                self.on(AppEvent::Quit, notes);
            }
            What::TimePasses => {}
        }
        if let Some((_, kill_at, _)) = self.led
            && self.now > kill_at
            && self.participants.iter().any(|participant| participant.works.is_some())
        {
            notes.violated("I1", || "the app works after its kill deadline".into());
        }
    }

    /// Asked to stop, each leadership ends, and a tree that is to end is gone.
    fn recovers(mut self) -> Result<(), String> {
        (self.faults, self.left) = (0, Vec::new());
        self.on(AppEvent::Stop(Reason::StepDown), &mut Notes::default());
        for _ in 0..64 {
            if self.led.is_none() && self.tree == Tree::Lives {
                break;
            }
            let Some(next) = self.events().first().copied() else { break };
            self.happen(next, &mut Notes::default());
        }
        if self.led.is_some() { Err("a leadership that is asked to stop never ends".into()) } else { Ok(()) }
    }
}
