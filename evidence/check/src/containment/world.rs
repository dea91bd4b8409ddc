//! [`World`]: guardian, host and keeper, a command with one more process, and a lease. A process that runs has its turn
//! before time passes. It may be stopped, crash or hang at any moment, so a turn may come at any time, or never.

use crate::{
    Assumption,
    search::{Model, Notes, happenings},
};
use ielections::Ttl;
use std::{collections::VecDeque, time::Duration};
use vvm_clock::Instant;
use vvm_containment::{GuardianRules, KeeperAction, KeeperEvent, KeeperRules, is_proven};
use vvm_deadman::SECOND_LAYER_BEHIND;
use vvm_host::operate::HostEnd;

/// Of `vvm run` with a TTL of 20 s: from a renewal to the kill deadline, and from the host's kill to the deadline. A
/// keeper kills without an order when half of that is left.
const TTL: Duration = Duration::from_secs(20);
const KILL: Duration = Duration::from_secs(16);
const KILLING: Duration = Duration::from_millis(200);
/// How long a guardian waits for a host that it has killed.
const LEAVES: Duration = Duration::from_secs(2);
/// How far behind the deadline the guardian kills at the latest: a constant of this check's own.
const BEHIND: Duration = Duration::from_millis(10);

happenings! {
    /// What may happen, and how a story tells it.
    What {
        KeeperTurns = "the keeper looks at all",
        HostTurns = "the host looks at all",
        GuardianTurns = "the guardian looks at all",
        DeadmanKills = "the deadman kills the host",
        TimerKills = "its own timer kills the keeper",
        CommandIsOver = "the command, killed, has ended",
        OtherIsOver = "the other process, killed, has ended",
        HostIsOver = "the kernel lets go of the host, which ends",
        HostGoesOn = "the host goes on",
        KeeperGoesOn = "the keeper goes on",
        GuardianGoesOn = "the guardian goes on",
        KeeperGets = "the keeper gets descriptors again",
        TimePasses = "time passes",
        // From here on: bounded in number.
        Forks = "the command starts another process",
        CommandEnds = "the command ends by itself",
        // From here on: and together.
        Renews = "a renewal is confirmed",
        IsAsked = "the host is asked to stop",
        HostCrashes = "the host crashes",
        KeeperCrashes = "the keeper crashes",
        GuardianCrashes = "the guardian crashes",
        HostIsStopped = "the host is stopped",
        KeeperIsStopped = "the keeper is stopped",
        GuardianIsStopped = "the guardian is stopped",
        HostHangs = "the host hangs in the kernel",
        KeeperLacks = "the keeper gets no descriptor, and finds no process",
        LosesOrder = "the link to the keeper is full: a message is lost",
        LosesNotice = "the link to the guardian is full: a message is lost",
        LosesClaim = "the guardian has lost the note of the claim",
        Leaves = "the other process leaves the descent",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Life {
    Runs,
    IsStopped,
    /// In the kernel, which ends it later or never.
    Hangs,
    IsDead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Being {
    NotYet,
    Lives,
    /// It got KILL, and has not ended.
    IsKilled,
    /// Its parent has not reaped it.
    Ended,
    IsReaped,
}

#[derive(Clone, Copy, Hash)]
enum Order {
    Deadline(Instant),
    Kill,
}

#[derive(Clone, Copy, Hash)]
enum Notice {
    Deadline(Option<Instant>),
    Unproven,
    Farewell,
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Said {
    Ended,
    Gone,
}

#[derive(Clone, Hash)]
struct Host {
    life: Life,
    /// Its deadman kills it then. Later than what guardian and keeper know, or the same.
    deadline: Instant,
    has_ordered: bool,
    has_heard_gone: bool,
    /// It has released the record, or leaves that to the guardian.
    is_over: bool,
}

#[derive(Clone, Hash)]
struct Keeper {
    life: Life,
    rules: KeeperRules,
    timer: Option<Instant>,
    /// It has looked at the time, and waits all the same.
    overslept: bool,
    lacks_descriptors: bool,
    orders: VecDeque<Order>,
    said: VecDeque<Said>,
}

#[derive(Clone, Hash)]
struct Guardian {
    life: Life,
    rules: GuardianRules,
    notices: VecDeque<Notice>,
    wakes_at: Option<Instant>,
    has_claim: bool,
    is_told_unproven: bool,
    is_told_farewell: bool,
    /// It kills and reaps, and from then on leaves a host behind.
    sweeps: Option<Instant>,
}

#[derive(Clone, Hash)]
pub(crate) struct World {
    now: Instant,
    host: Host,
    keeper: Keeper,
    guardian: Guardian,
    /// The command's own process, which dies with the keeper, and one that it starts.
    tree: [Being; 2],
    is_descendant: bool,
    has_group: bool,
    left: Vec<(What, u8)>,
    faults: u8,
    dropped: Option<Assumption>,
}

const COMMAND: usize = 0;
const OTHER: usize = 1;

impl World {
    pub(super) fn new(
        has_group: bool,
        left: Vec<(What, u8)>,
        faults: u8,
        dropped: Option<Assumption>,
    ) -> Self {
        let now = Instant::ORIGIN.after(Duration::from_secs(100));
        let deadline = now.after(KILL);
        // Work begins once both have confirmed the deadline.
        let mut keeper = KeeperRules::new(KILLING / 2);
        let Some(KeeperAction::Arm(timer)) = keeper.on(KeeperEvent::Deadline(Some(deadline))) else {
            unreachable!("a keeper arms its timer")
        };
        let mut guardian = GuardianRules::default();
        let wakes_at = guardian.moves(Some(deadline));
        Self {
            now,
            host: Host {
                life: Life::Runs,
                deadline,
                has_ordered: false,
                has_heard_gone: false,
                is_over: false,
            },
            keeper: Keeper {
                life: Life::Runs,
                rules: keeper,
                timer,
                overslept: false,
                lacks_descriptors: false,
                orders: VecDeque::new(),
                said: VecDeque::new(),
            },
            guardian: Guardian {
                life: Life::Runs,
                rules: guardian,
                notices: VecDeque::new(),
                wakes_at,
                has_claim: true,
                is_told_unproven: false,
                is_told_farewell: false,
                sweeps: None,
            },
            tree: [Being::Lives, Being::NotYet],
            is_descendant: true,
            has_group,
            left,
            faults,
            dropped,
        }
    }

    fn drops(&self, assumption: Assumption) -> bool {
        self.dropped == Some(assumption)
    }

    fn may(&self, what: What) -> bool {
        let left = || self.left.iter().any(|(bounded, left)| *bounded == what && *left > 0);
        let is_fault = what as usize >= What::Renews as usize;
        ((what as usize) < What::Forks as usize || left()) && (!is_fault || self.faults > 0)
    }

    fn spend(&mut self, what: What) {
        self.faults -= u8::from(what as usize >= What::Renews as usize);
        self.left.iter_mut().filter(|(bounded, _)| *bounded == what).for_each(|(_, left)| *left -= 1);
    }

    /// Those that are children or further descendants of the keeper, and of the guardian after it.
    fn family(&self) -> impl Iterator<Item = usize> + use<> {
        let (tree, is_descendant) = (self.tree, self.is_descendant);
        let is_there = move |at: &usize| !matches!(tree[*at], Being::NotYet | Being::IsReaped);
        [COMMAND, OTHER].into_iter().filter(move |at| is_there(at) && (*at == COMMAND || is_descendant))
    }

    fn has_member(&self, which: impl Fn(Being) -> bool) -> bool {
        self.has_group && self.tree.iter().any(|being| which(*being))
    }

    fn has_prey(&self) -> bool {
        self.family().any(|at| self.tree[at] == Being::Lives)
            || self.has_member(|being| being == Being::Lives)
    }

    /// Some process of the command can do something, or will when the kernel lets go of it.
    fn works(&self) -> bool {
        self.tree.iter().any(|being| matches!(being, Being::Lives | Being::IsKilled))
    }

    fn kill_all(&mut self) {
        for at in [COMMAND, OTHER] {
            let is_found = at == COMMAND || self.is_descendant || self.has_group;
            if self.tree[at] == Being::Lives && is_found {
                self.tree[at] = Being::IsKilled;
            }
        }
    }

    /// Reaps what has ended. Returns whether the command's own process was among it.
    fn reap(&mut self) -> bool {
        let had_ended = self.tree[COMMAND] == Being::Ended;
        for at in self.family() {
            if self.tree[at] == Being::Ended {
                self.tree[at] = Being::IsReaped;
            }
        }
        had_ended
    }

    fn keeper_is_due(&self) -> bool {
        self.keeper.rules.wakes_at().is_some_and(|at| self.now >= at)
    }

    fn keeper_has_a_turn(&self) -> bool {
        let Keeper { life, rules, orders, .. } = &self.keeper;
        let hears = !orders.is_empty() || self.host.life == Life::IsDead && rules.has_supervisor();
        let sees = self.guardian.life == Life::IsDead && !rules.is_killing();
        let is_due = self.keeper_is_due() && !self.keeper.overslept;
        let reaps = self.family().any(|at| self.tree[at] == Being::Ended);
        let is_childless = self.family().next().is_none();
        let ends = is_childless && !self.has_member(|being| being == Being::IsKilled);
        let finds = !self.keeper.lacks_descriptors || is_childless;
        let kills = (rules.is_killing() || is_childless) && finds && self.has_prey();
        *life == Life::Runs && (hears || sees || is_due || reaps || ends || kills)
    }

    fn keeper_turns(&mut self, notes: &mut Notes) {
        if self.reap() {
            self.keeper.said.push_back(Said::Ended);
        }
        let is_childless = self.family().next().is_none();
        let has_member = self.has_member(|being| matches!(being, Being::Lives | Being::IsKilled));
        let mut looks = false;
        let is_over = KeeperRules::is_over(is_childless, || {
            looks = true;
            !has_member
        });
        if looks && has_member {
            notes.reach("a group with a member that is no descendant");
            self.kill_all();
        }
        if is_over {
            self.keeper.said.push_back(Said::Gone);
            self.keeper_dies();
            return;
        }
        while let Some(order) = self.keeper.orders.pop_front() {
            let event = match order {
                Order::Deadline(deadline) => KeeperEvent::Deadline(Some(deadline)),
                Order::Kill => KeeperEvent::Kill,
            };
            self.keeper_does(event, notes);
        }
        if self.host.life == Life::IsDead && self.keeper.rules.has_supervisor() {
            self.keeper_does(KeeperEvent::LinkClosed, notes);
        }
        if self.guardian.life == Life::IsDead {
            self.keeper_does(KeeperEvent::GuardianEnded, notes);
        }
        self.keeper_does(KeeperEvent::Turn(self.now), notes);
        self.keeper.overslept = self.keeper_is_due();
    }

    fn keeper_does(&mut self, event: KeeperEvent, notes: &mut Notes) {
        let was_killing = self.keeper.rules.is_killing();
        match self.keeper.rules.on(event) {
            Some(KeeperAction::Arm(at)) => self.keeper.timer = at,
            Some(KeeperAction::Disarm) => {
                notes.reach("a keeper that disarms its timer and waits");
                self.keeper.timer = None;
            }
            Some(KeeperAction::ConfirmKill) => notes.reach("a keeper that kills by order"),
            Some(KeeperAction::Sweep) => {
                if !was_killing {
                    notes.reach(if self.keeper.rules.has_supervisor() {
                        "a keeper that kills at the deadline, without order"
                    } else {
                        "a keeper that kills without supervisor"
                    });
                } else if self.guardian.life == Life::IsDead {
                    notes.reach("a keeper that kills without guardian");
                }
                let is_complete = !self.keeper.lacks_descriptors;
                if is_complete {
                    self.kill_all();
                }
                self.keeper_does(KeeperEvent::Swept(self.now, is_complete), notes);
            }
            None => {}
        }
    }

    fn keeper_dies(&mut self) {
        self.keeper.life = Life::IsDead;
        self.keeper.orders.clear();
        if self.tree[COMMAND] == Being::Lives && !self.drops(Assumption::ParentDeath) {
            self.tree[COMMAND] = Being::IsKilled;
        }
    }

    fn host_is_to_order(&self) -> bool {
        let is_due = self.now >= self.host.deadline.before(KILLING);
        !self.host.has_ordered && (is_due || self.guardian.life == Life::IsDead)
    }

    fn host_has_a_turn(&self) -> bool {
        let hears = !self.keeper.said.is_empty() || self.keeper.life == Life::IsDead;
        self.host.life == Life::Runs && (hears || self.host_is_to_order())
    }

    fn host_turns(&mut self, notes: &mut Notes) {
        if let Some(said) = self.keeper.said.pop_front() {
            self.host.has_heard_gone |= said == Said::Gone;
            if said == Said::Ended && !self.host.has_ordered {
                self.host_orders(notes);
            }
        } else if self.keeper.life == Life::IsDead {
            let is_proven = is_proven(true, self.host.has_heard_gone);
            if is_proven {
                notes.reach("a proof of the keeper");
                notes.reach("a release by the host");
                self.released("the host", notes);
                self.notify(Notice::Deadline(None));
            } else {
                notes.reach("a keeper that ended without proof");
                self.notify(Notice::Unproven);
            }
            self.notify(Notice::Farewell);
            self.notify(Notice::Finished);
            (self.host.is_over, self.host.life) = (true, Life::Hangs);
        } else {
            self.host_orders(notes);
        }
    }

    fn host_orders(&mut self, notes: &mut Notes) {
        self.host.has_ordered = true;
        self.order(Order::Kill);
        if self.keeper.life == Life::IsStopped {
            notes.reach("a stopped keeper that the host continues");
            self.keeper.life = Life::Runs;
        }
    }

    fn order(&mut self, order: Order) {
        if self.keeper.life != Life::IsDead {
            self.keeper.orders.push_back(order);
        }
    }

    fn notify(&mut self, notice: Notice) {
        if self.guardian.life != Life::IsDead {
            self.guardian.notices.push_back(notice);
        }
    }

    /// Nothing is left but a host that hangs.
    fn is_alone(&self) -> bool {
        self.keeper.life == Life::IsDead && self.family().next().is_none()
    }

    fn guardian_has_a_turn(&self) -> bool {
        let Guardian { life, rules, notices, sweeps, .. } = &self.guardian;
        let host_is_dead = self.host.life == Life::IsDead;
        let can_kill = || {
            matches!(self.host.life, Life::Runs | Life::IsStopped)
                || self.keeper.life != Life::IsDead
                || self.has_prey()
        };
        let reaps = self.keeper.life == Life::IsDead && self.family().any(|at| self.tree[at] == Being::Ended);
        let acts = match sweeps {
            None => !notices.is_empty() || host_is_dead || rules.is_due(self.now),
            Some(leaves) => can_kill() || self.is_alone() && (host_is_dead || self.now >= *leaves),
        };
        *life == Life::Runs && (acts || reaps)
    }

    fn guardian_listens(&mut self) {
        while let Some(notice) = self.guardian.notices.pop_front() {
            match notice {
                Notice::Deadline(deadline) => self.guardian.wakes_at = self.guardian.rules.moves(deadline),
                Notice::Unproven => self.guardian.is_told_unproven = true,
                Notice::Farewell => self.guardian.is_told_farewell = true,
                Notice::Finished => self.guardian.rules.finished(self.now),
            }
        }
    }

    fn guardian_turns(&mut self, notes: &mut Notes) {
        let Some(leaves) = self.guardian.sweeps else {
            self.guardian_listens();
            if self.keeper.life == Life::IsDead {
                self.reap();
            }
            let is_dead = self.host.life == Life::IsDead;
            if is_dead || self.guardian.rules.is_due(self.now) {
                notes.reach(if is_dead {
                    "a guardian that kills after the end of the host"
                } else {
                    "a guardian that kills at the deadline"
                });
                let leaves = !is_dead && self.guardian.rules.may_leave();
                self.guardian.sweeps = Some(if leaves { self.now.after(LEAVES) } else { Instant::NEVER });
            }
            return;
        };
        self.kill_all();
        if self.keeper.life != Life::IsDead {
            self.keeper_dies();
        }
        if self.host.life != Life::Hangs {
            self.host.life = Life::IsDead;
        }
        self.reap();
        let left_behind = self.host.life != Life::IsDead;
        if !self.is_alone() || left_behind && self.now < leaves {
            return;
        }
        if left_behind {
            notes.reach("a host that is left behind");
            if !self.host.is_over {
                notes.violated("I6", || "a host is left behind that may release".into());
            }
        }
        let is_dissolved = !self.has_member(|being| matches!(being, Being::Lives | Being::IsKilled));
        self.guardian_listens();
        let Guardian { rules, is_told_farewell, is_told_unproven, has_claim, .. } = &self.guardian;
        let end = HostEnd {
            proven: GuardianRules::is_proven(left_behind, is_dissolved),
            orderly: *is_told_farewell && !is_told_unproven,
            reaped_at: self.now,
            deadline: rules.deadline(),
        };
        let ttl = Ttl::new(TTL).unwrap_or_else(|_| unreachable!("20 s is a TTL"));
        match end.release_window(self.now, ttl, Duration::ZERO) {
            Some(_) if *has_claim => {
                notes.reach("a release by the guardian");
                self.released("the guardian", notes);
            }
            Some(_) => notes.reach("no release, for want of the claim"),
            None if end.orderly => notes.reach("no release, after an orderly end"),
            None if !end.proven => notes.reach("no release, for want of proof"),
            None => {}
        }
        self.guardian.life = Life::IsDead;
    }

    /// Nothing works any more (I6).
    fn released(&self, by: &str, notes: &mut Notes) {
        if self.works() {
            notes.violated("I6", || format!("{by} releases the record, and a process of the command lives"));
        }
    }

    /// Everything has had its turn, and time is about to pass: what should have got KILL by now has got it (I4).
    fn observe_deadline(&self, notes: &mut Notes) {
        let Some(first) = self.tree.iter().position(|being| *being == Being::Lives) else { return };
        let by = |behind| self.now >= self.host.deadline.after(behind);
        let runs = |life| life == Life::Runs;
        let how = if by(Duration::ZERO) && runs(self.keeper.life) && !self.keeper.lacks_descriptors {
            "the keeper runs, and the deadline has passed"
        } else if by(BEHIND) && runs(self.guardian.life) {
            "the guardian runs, and the deadline has passed"
        } else if by(BEHIND) && self.drops(Assumption::Acts) {
            "the deadline has passed"
        } else if by(SECOND_LAYER_BEHIND) && first == COMMAND {
            "the deadline has passed, and with it the keeper's timer"
        } else {
            return;
        };
        notes.violated("I4", || format!("a process of the command lives on: {how}"));
    }

    fn next(&self) -> Option<Instant> {
        let (host, keeper, guardian) = (&self.host, &self.keeper, &self.guardian);
        let runs = |life, at: Option<Instant>| at.filter(|_| life == Life::Runs);
        let is_alive = |life, at: Option<Instant>| at.filter(|_| life != Life::IsDead);
        let deadline = Some(host.deadline);
        let lives = self.tree.contains(&Being::Lives);
        let looks = |behind| deadline.filter(|_| lives).map(|at| at.after(behind));
        let all = [
            runs(host.life, deadline.filter(|_| !host.has_ordered).map(|at| at.before(KILLING))),
            is_alive(host.life, deadline.filter(|_| host.life != Life::Hangs)),
            runs(keeper.life, keeper.rules.wakes_at()),
            is_alive(keeper.life, keeper.timer),
            runs(guardian.life, guardian.wakes_at.filter(|_| guardian.sweeps.is_none())),
            runs(guardian.life, guardian.rules.kill_at().filter(|_| guardian.sweeps.is_none())),
            runs(guardian.life, guardian.sweeps.filter(|at| *at != Instant::NEVER)),
            looks(Duration::ZERO),
            looks(SECOND_LAYER_BEHIND),
            looks(BEHIND),
            looks(BEHIND * 2),
        ];
        all.into_iter().flatten().filter(|at| *at > self.now).min()
    }
}

impl Model for World {
    type Event = What;

    fn events(&self) -> Vec<What> {
        let (host, keeper, guardian) = (self.host.life, self.keeper.life, self.guardian.life);
        let mut events = Vec::new();
        let mut add = |what, may: bool| {
            if may && self.may(what) {
                events.push(what);
            }
            may
        };
        let is_due = self.now >= self.host.deadline && matches!(host, Life::Runs | Life::IsStopped);
        let kills_itself = keeper != Life::IsDead && self.keeper.timer.is_some_and(|at| self.now >= at);
        let urgent = [
            add(What::DeadmanKills, is_due),
            add(What::KeeperTurns, self.keeper_has_a_turn()),
            add(What::HostTurns, self.host_has_a_turn()),
            add(What::GuardianTurns, self.guardian_has_a_turn()),
            add(What::TimerKills, kills_itself),
        ];
        add(What::CommandIsOver, self.tree[COMMAND] == Being::IsKilled);
        add(What::OtherIsOver, self.tree[OTHER] == Being::IsKilled);
        add(What::HostIsOver, host == Life::Hangs);
        add(What::HostGoesOn, host == Life::IsStopped);
        add(What::KeeperGoesOn, keeper == Life::IsStopped);
        add(What::GuardianGoesOn, guardian == Life::IsStopped);
        add(What::KeeperGets, keeper != Life::IsDead && self.keeper.lacks_descriptors);
        add(What::TimePasses, !urgent.contains(&true) && self.next().is_some());
        let leads = host == Life::Runs && !self.host.has_ordered;
        let lives = self.tree[COMMAND] == Being::Lives;
        add(What::Forks, lives && self.tree[OTHER] == Being::NotYet);
        add(What::CommandEnds, lives);
        add(What::Renews, leads && self.now < self.host.deadline);
        add(What::IsAsked, leads);
        let is_alive = |life| matches!(life, Life::Runs | Life::IsStopped);
        add(What::HostCrashes, is_alive(host));
        add(What::KeeperCrashes, is_alive(keeper));
        add(What::GuardianCrashes, is_alive(guardian));
        add(What::HostIsStopped, host == Life::Runs);
        add(What::KeeperIsStopped, keeper == Life::Runs);
        add(What::GuardianIsStopped, guardian == Life::Runs);
        add(What::HostHangs, host == Life::Runs);
        add(What::KeeperLacks, keeper == Life::Runs && !self.keeper.lacks_descriptors);
        add(What::LosesOrder, !self.keeper.orders.is_empty());
        add(What::LosesNotice, !self.guardian.notices.is_empty());
        add(What::LosesClaim, self.guardian.has_claim && guardian != Life::IsDead);
        add(What::Leaves, self.is_descendant && self.tree[OTHER] == Being::Lives);
        events
    }

    fn happen(&mut self, what: What, notes: &mut Notes) {
        notes.tell(|| {
            let seconds = self.now.as_nanos() as f64 / 1e9 - 100.0;
            format!("{seconds:7.3} s  {}", what.told())
        });
        notes.reach(what.told());
        self.spend(what);
        match what {
            What::KeeperTurns => self.keeper_turns(notes),
            What::HostTurns => self.host_turns(notes),
            What::GuardianTurns => self.guardian_turns(notes),
            What::DeadmanKills => {
                notes.reach("a host that its deadman kills");
                self.host.life = Life::IsDead;
            }
            What::TimerKills => {
                notes.reach("a keeper that its own timer kills");
                self.keeper_dies();
            }
            What::CommandIsOver => self.tree[COMMAND] = Being::Ended,
            What::OtherIsOver => self.tree[OTHER] = Being::Ended,
            What::HostIsOver | What::HostCrashes => self.host.life = Life::IsDead,
            What::HostGoesOn => self.host.life = Life::Runs,
            What::KeeperGoesOn => self.keeper.life = Life::Runs,
            What::GuardianGoesOn => self.guardian.life = Life::Runs,
            What::KeeperGets => self.keeper.lacks_descriptors = false,
            What::TimePasses => {
                self.observe_deadline(notes);
                self.now = self.next().unwrap_or(self.now);
            }
            What::Forks => self.tree[OTHER] = Being::Lives,
            What::CommandEnds => self.tree[COMMAND] = Being::Ended,
            What::Renews => {
                self.host.deadline = self.now.after(KILL);
                self.order(Order::Deadline(self.host.deadline));
                self.notify(Notice::Deadline(Some(self.host.deadline)));
            }
            What::IsAsked => self.host_orders(notes),
            What::KeeperCrashes => self.keeper_dies(),
            What::GuardianCrashes => self.guardian.life = Life::IsDead,
            What::HostIsStopped => self.host.life = Life::IsStopped,
            What::KeeperIsStopped => self.keeper.life = Life::IsStopped,
            What::GuardianIsStopped => self.guardian.life = Life::IsStopped,
            What::HostHangs => self.host.life = Life::Hangs,
            What::KeeperLacks => self.keeper.lacks_descriptors = true,
            What::LosesOrder => drop(self.keeper.orders.pop_front()),
            What::LosesNotice => drop(self.guardian.notices.pop_front()),
            What::LosesClaim => self.guardian.has_claim = false,
            What::Leaves => self.is_descendant = false,
        }
    }

    /// All that is stopped or hangs goes on: nothing of the command is left, unless both that would end it are dead.
    fn recovers(mut self) -> Result<(), String> {
        (self.faults, self.left) = (0, Vec::new());
        let notes = &mut Notes::default();
        for _ in 0..64 {
            let Some(next) = self.events().first().copied() else { break };
            self.happen(next, notes);
        }
        let is_seen_to = self.keeper.life != Life::IsDead || self.guardian.life != Life::IsDead;
        if self.works() && is_seen_to { Err("the command never ends".into()) } else { Ok(()) }
    }
}
