//! [`Machine`]: what a host does about its warm app, as a value without I/O: one tree of processes, its
//! connections, and at most one leadership at a time.
//!
//! - **I6, release.** [`Effect::Over`] allows the release. It follows [`AppEvent::TreeGone`], the keeper's proof
//!   that no process of the tree is left, or a leadership of which no `lead` was sent. A participant without
//!   `lead` does not work, so nothing has to stop. With `--after-stop keep` it also follows `stopped`: then the app's
//!   word stands for the proof. Every other end needs the proof there, too.
//! - **I4, arming.** `lead` is sent only after [`AppEvent::InForce`]: guardian and keeper have set their own timers to
//!   the kill deadline. The tree is older than the leadership, so its keeper may have been stopped since.
//! - **I1, one participant.** The connection of an [`Arming`](WarmPhase::Arming) leadership is chosen once. If it
//!   closes, the leadership ends; no other connection gets its epoch. A message counts if it comes from that connection
//!   and names that epoch, so a message that was on its way when a leadership ended changes nothing.
//!
//! Races of messages: `ready: false`, the end of a connection and a stop request may all arrive between a claim
//! and `lead`. Each of them leaves the phase `Arming`, so that the later `InForce` finds no one to send `lead`
//! to. `stopped` and the end of the connection may arrive together: the socket passes on what was buffered
//! first, and the second of both finds the phase `Ending`, or a `Standby` that was kept.
#![allow(missing_docs, reason = "names say it; no interface for other programs")]

use super::protocol::{Decimal, FromApp, Reason, ToApp, VERSION};
use clap::ValueEnum;
use ielections::Epoch;
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::Instant;

/// What follows when a warm app has said that its work has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
#[allow(missing_docs, reason = "`--help` explains both together, and would show what is written here")]
pub enum AfterStop {
    Restart,
    Keep,
}

/// The number of a connection. A later one has a larger number.
pub type Connection = u64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Term {
    pub slot: u32,
    pub epoch: Epoch,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Times {
    /// When the leadership is lost unless a renewal is confirmed before.
    pub stop_by: Instant,
    /// When all processes of the app are dead unless a renewal is confirmed before.
    pub kill_at: Instant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppEvent {
    /// A descendant of the keeper has connected.
    Connected(Connection),
    Said(Connection, FromApp),
    /// It has sent a line that is no message.
    Garbled(Connection, String),
    /// The connection is closed, or its process has ended. Its last messages came before.
    Closed(Connection),
    Won(Term, Times),
    /// Guardian and keeper have confirmed the kill deadline of the leadership.
    InForce,
    /// They have not, for as long as an acquisition counts as fresh.
    NotInForce,
    /// A renewal moved the deadlines, or a loss did.
    Moved(Times),
    /// No renewal was confirmed for half a TTL.
    AtRisk,
    Stop(Reason),
    Quit,
    /// A time limit may have passed.
    Tick,
    TreeGone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Greet(Connection),
    Send(Connection, ToApp),
    Close(Connection),
    /// Whether the host may campaign.
    Ready(bool),
    Leads,
    Ends(EndReason),
    Over,
    /// The app has said that its work has stopped, and lives on.
    Keeps,
    /// Stop the tree: TERM, then KILL within the deadline.
    TermTree,
    KillTree,
}

/// How much of the reason of an app is shown, in characters: lines and the history stay short.
const LONGEST_REASON: usize = 500;

/// An app may stop so much before `stop_by`: Node reads its clock in steps of 10 ms, and times are sent in whole ms.
const CLOCKS_DIFFER: Duration = Duration::from_millis(50);

/// Why the leadership of an app ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The host or the app asked for it.
    Asked(Reason),
    /// The app said `stopped` without `stop`.
    Stopped,
    Failed(Box<str>),
    Gone,
    /// No `leading` within `--start-timeout`.
    NotLeading,
    /// No `alive` within `--alive-within`.
    NotAlive,
    NotStopped,
    /// Its keeper or the guardian did not confirm the kill deadline.
    NotInForce,
    /// It has sent a line that is no message.
    Garbled,
}

impl EndReason {
    /// Whether the next tree may start at once: the app has done as it was asked to.
    pub fn is_wanted(&self) -> bool {
        matches!(self, Self::Asked(Reason::StepDown | Reason::Terminating))
    }

    pub fn is_of_the_app(&self) -> bool {
        !matches!(self, Self::Asked(Reason::Lost | Reason::StepDown | Reason::Terminating))
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Asked(Reason::Lost) => "the leadership is lost",
            Self::Asked(Reason::StepDown) => "asked to stop",
            Self::Asked(Reason::Terminating) => "stop requested",
            Self::Asked(Reason::Resigned) => "the app resigned",
            Self::Asked(Reason::NotReady) => "the app is not ready any more",
            Self::Stopped => "the app stopped its work unasked",
            Self::Failed(reason) => {
                let shown = reason.chars().take(LONGEST_REASON);
                let shown: String = shown.map(|one| if one.is_control() { ' ' } else { one }).collect();
                return write!(out, "the app failed: {shown}");
            }
            Self::Gone => "the app closed its connection, or ended, without \"stopped\"",
            Self::NotLeading => "the app did not say \"leading\" within --start-timeout",
            Self::NotAlive => "the app did not say \"alive\" within --alive-within",
            Self::NotStopped => "the app did not say \"stopped\" within --stop-timeout",
            Self::NotInForce => "the keeper of the app does not confirm the kill deadline (stopped?)",
            Self::Garbled => "the app sent a line that is no message",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// From `lead` to `leading`.
    pub start: Duration,
    /// From `leading` or `alive` to the next `alive`, while it leads.
    pub alive: Option<Duration>,
    /// From `stop` to `stopped`.
    pub stop: Duration,
    /// What is left until the kill deadline for TERM, if `stopped` is not said.
    pub least_to_stop: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum WarmPhase {
    /// No leadership. Claims may be on their way.
    Standby,
    Arming {
        term: Term,
        by: Connection,
    },
    Leading {
        term: Term,
        by: Connection,
        answered: bool,
        /// When it has to say `leading` or `alive`.
        answer_by: Instant,
    },
    /// It has said `stopped` at `stop_by`, as it has to. The loss follows, or the renewal that was not confirmed in time.
    Expired {
        term: Term,
        by: Connection,
    },
    Stopping {
        term: Term,
        by: Connection,
        until: Instant,
    },
    /// The tree is being ended. A leadership is released after it.
    Ending {
        term: Option<Term>,
    },
}

impl WarmPhase {
    fn term(self) -> Option<Term> {
        match self {
            Self::Standby => None,
            Self::Arming { term, .. }
            | Self::Leading { term, .. }
            | Self::Expired { term, .. }
            | Self::Stopping { term, .. } => Some(term),
            Self::Ending { term } => term,
        }
    }

    /// Whether `lead` with this epoch was sent to `connection`, and the tree is not being ended.
    fn is_led_by(self, connection: Connection, epoch: Epoch) -> bool {
        let (Self::Leading { term, by, .. } | Self::Stopping { term, by, .. }) = self else { return false };
        (by, term.epoch) == (connection, epoch)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    limits: Limits,
    after_stop: AfterStop,
    phase: WarmPhase,
    times: Option<Times>,
    /// Whether each open connection has said `hello`.
    connections: BTreeMap<Connection, bool>,
    /// The connections that could lead. The first leads next.
    ready: Vec<Connection>,
    quits: bool,
    reported_ready: bool,
}

impl Machine {
    pub fn new(limits: Limits, after_stop: AfterStop) -> Self {
        Self {
            limits,
            after_stop,
            phase: WarmPhase::Standby,
            times: None,
            connections: BTreeMap::new(),
            ready: Vec::new(),
            quits: false,
            reported_ready: false,
        }
    }

    pub fn due(&self) -> Instant {
        match self.phase {
            WarmPhase::Leading { answer_by: at, .. } | WarmPhase::Stopping { until: at, .. } => at,
            WarmPhase::Standby
            | WarmPhase::Arming { .. }
            | WarmPhase::Expired { .. }
            | WarmPhase::Ending { .. } => Instant::NEVER,
        }
    }

    /// Whether a slot is won, and guardian and keeper have yet to confirm its deadline.
    pub fn is_arming(&self) -> bool {
        matches!(self.phase, WarmPhase::Arming { .. })
    }

    /// Whether `lead` was sent, and the tree is not being ended.
    pub fn is_leading(&self) -> bool {
        matches!(
            self.phase,
            WarmPhase::Leading { .. } | WarmPhase::Expired { .. } | WarmPhase::Stopping { .. }
        )
    }

    /// Returns what keeps a standby from campaigning, if anything of the app does.
    pub fn missing(&self) -> Option<&'static str> {
        match self.phase {
            WarmPhase::Standby if !self.ready.is_empty() => None,
            WarmPhase::Standby if self.connections.is_empty() => {
                Some("no process of it has connected to VVM_SOCKET")
            }
            WarmPhase::Standby => Some("it has connected, and has not said \"ready\""),
            _ => None,
        }
    }

    pub fn on(&mut self, now: Instant, event: AppEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            AppEvent::Connected(connection) => {
                self.connections.insert(connection, false);
                effects.push(Effect::Greet(connection));
            }
            AppEvent::Said(connection, message) => self.said(now, connection, message, &mut effects),
            AppEvent::Garbled(connection, reason) => self.refuse(connection, reason, &mut effects),
            AppEvent::Closed(connection) => self.closed(connection, EndReason::Gone, &mut effects),
            AppEvent::Won(term, times) => match (self.phase, self.ready.first()) {
                (WarmPhase::Standby, Some(by)) if !self.quits => {
                    self.times = Some(times);
                    self.phase = WarmPhase::Arming { term, by: *by };
                }
                _ => effects.push(Effect::Over),
            },
            AppEvent::InForce => self.lead(now, &mut effects),
            AppEvent::NotInForce if self.is_arming() => {
                self.end(EndReason::NotInForce, Effect::TermTree, &mut effects);
            }
            AppEvent::NotInForce => {}
            AppEvent::Moved(times) => {
                // A loss brings the deadline forward, and follows.
                let is_renewed = self.times.is_none_or(|before| before.kill_at < times.kill_at);
                self.times = Some(times);
                if let WarmPhase::Stopping { until, .. } = &mut self.phase {
                    *until = times.kill_at.before(self.limits.least_to_stop).min(*until);
                } else if let WarmPhase::Expired { by, .. } = self.phase
                    && is_renewed
                {
                    self.stopped_unasked(by, &mut effects);
                } else if let WarmPhase::Leading { term, by, .. } = self.phase {
                    let Times { stop_by, kill_at } = times;
                    let (stop_by, kill_at) = (stop_by.into(), kill_at.into());
                    effects.push(Effect::Send(
                        by,
                        ToApp::Renewed { epoch: Decimal(term.epoch), stop_by, kill_at },
                    ));
                }
            }
            AppEvent::AtRisk => {
                if let WarmPhase::Leading { term, by, .. } = self.phase {
                    effects.push(Effect::Send(by, ToApp::AtRisk { epoch: Decimal(term.epoch) }));
                }
            }
            AppEvent::Stop(reason) => self.stop(now, reason, &mut effects),
            AppEvent::Quit => {
                self.quits = true;
                match self.phase {
                    WarmPhase::Standby | WarmPhase::Arming { .. } => {
                        self.end(EndReason::Asked(Reason::Terminating), Effect::TermTree, &mut effects);
                    }
                    WarmPhase::Leading { .. } | WarmPhase::Expired { .. } => {
                        self.stop(now, Reason::Terminating, &mut effects);
                    }
                    WarmPhase::Stopping { .. } | WarmPhase::Ending { .. } => {}
                }
            }
            AppEvent::Tick => match self.phase {
                WarmPhase::Leading { answered, answer_by, .. } if now >= answer_by => {
                    let ending = if answered { EndReason::NotAlive } else { EndReason::NotLeading };
                    self.end(ending, Effect::TermTree, &mut effects);
                }
                WarmPhase::Stopping { until, .. } if now >= until => {
                    self.end(EndReason::NotStopped, Effect::TermTree, &mut effects);
                }
                _ => {}
            },
            AppEvent::TreeGone => {
                if self.is_leading() {
                    effects.push(Effect::Ends(EndReason::Gone));
                }
                effects.extend(self.phase.term().map(|_| Effect::Over));
                self.phase = WarmPhase::Ending { term: None };
                self.ready.clear();
            }
        }
        let ready = match self.phase {
            WarmPhase::Standby => !self.quits && !self.ready.is_empty(),
            WarmPhase::Arming { .. } | WarmPhase::Leading { .. } | WarmPhase::Expired { .. } => true,
            WarmPhase::Stopping { .. } | WarmPhase::Ending { .. } => false,
        };
        if ready != self.reported_ready {
            self.reported_ready = ready;
            effects.push(Effect::Ready(ready));
        }
        effects
    }

    fn said(&mut self, now: Instant, from: Connection, message: FromApp, effects: &mut Vec<Effect>) {
        let Some(greeted) = self.connections.get_mut(&from) else { return };
        match message {
            FromApp::Hello { version: VERSION } => *greeted = true,
            FromApp::Hello { version } => {
                let reason = format!(
                    "this vvm speaks version {VERSION} of the warm protocol, not {version}: use vvm and client of \
                     one release"
                );
                self.refuse(from, reason, effects);
            }
            _ if !*greeted => self.refuse(from, "the first message is \"hello\"".into(), effects),
            FromApp::Ready { ready: true } if !self.ready.contains(&from) => self.ready.push(from),
            FromApp::Ready { ready: false } => {
                self.ready.retain(|ready| *ready != from);
                match self.phase {
                    WarmPhase::Arming { by, .. } if by == from => self.withdraw(effects),
                    WarmPhase::Leading { by, .. } if by == from => self.stop(now, Reason::NotReady, effects),
                    _ => {}
                }
            }
            FromApp::Leading { epoch: Decimal(of) } if self.phase.is_led_by(from, of) => {
                if let WarmPhase::Leading { answered, answer_by, .. } = &mut self.phase {
                    *answered = true;
                    *answer_by = self.limits.alive.map_or(Instant::NEVER, |within| now.after(within));
                }
            }
            FromApp::Alive { epoch: Decimal(of) } if self.phase.is_led_by(from, of) => {
                if let WarmPhase::Leading { answered: true, answer_by, .. } = &mut self.phase {
                    *answer_by = self.limits.alive.map_or(Instant::NEVER, |within| now.after(within));
                }
            }
            FromApp::Resign { epoch: Decimal(of) } if self.phase.is_led_by(from, of) => {
                if let WarmPhase::Leading { .. } = self.phase {
                    self.ready.retain(|ready| *ready != from);
                    self.stop(now, Reason::Resigned, effects);
                }
            }
            FromApp::Stopped { epoch: Decimal(of) } if self.phase.is_led_by(from, of) => match self.phase {
                WarmPhase::Leading { term, by, .. } if self.has_to_stop(now) => {
                    self.phase = WarmPhase::Expired { term, by };
                }
                WarmPhase::Leading { .. } => self.stopped_unasked(from, effects),
                _ => self.stopped(EndReason::Stopped, effects),
            },
            FromApp::Failed { epoch: Decimal(of), reason } if self.phase.is_led_by(from, of) => {
                // Also with `--after-stop keep`: its word that the work has stopped is missing.
                self.end(EndReason::Failed(reason), Effect::TermTree, effects);
            }
            // Of another connection, about another epoch, or of a later version.
            _ => {}
        }
    }

    fn lead(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let (WarmPhase::Arming { term, by }, Some(Times { stop_by, kill_at })) = (self.phase, self.times)
        else {
            return;
        };
        self.phase =
            WarmPhase::Leading { term, by, answered: false, answer_by: now.after(self.limits.start) };
        let (stop_by, kill_at) = (stop_by.into(), kill_at.into());
        let lead = ToApp::Lead { slot: term.slot, epoch: Decimal(term.epoch), stop_by, kill_at };
        effects.extend([Effect::Send(by, lead), Effect::Leads]);
    }

    /// Whether the app has to stop without a message, by its own clock: it may show a little more than ours.
    fn has_to_stop(&self, now: Instant) -> bool {
        self.times.is_some_and(|times| now >= times.stop_by.before(CLOCKS_DIFFER))
    }

    fn stopped_unasked(&mut self, by: Connection, effects: &mut Vec<Effect>) {
        // It would get the next leadership at once.
        self.ready.retain(|ready| *ready != by);
        if self.keeps() {
            effects.push(Effect::Ends(EndReason::Stopped));
        }
        self.stopped(EndReason::Stopped, effects);
    }

    /// Lets the app stand by again after `stopped`, or ends its tree, for this reason unless there was one before.
    fn stopped(&mut self, why: EndReason, effects: &mut Vec<Effect>) {
        if self.keeps() {
            self.phase = WarmPhase::Standby;
            // (I6) By the app's word.
            effects.extend([Effect::Keeps, Effect::Over]);
        } else {
            // If `vvm` ends, other work of the app, such as open requests, gets the time to end.
            let how = if self.quits { Effect::TermTree } else { Effect::KillTree };
            self.end(why, how, effects);
        }
    }

    fn keeps(&self) -> bool {
        self.after_stop == AfterStop::Keep && !self.quits
    }

    /// Ends a leadership of which no `lead` was sent, so that nothing has to stop (I6).
    fn withdraw(&mut self, effects: &mut Vec<Effect>) {
        self.phase = WarmPhase::Standby;
        effects.push(Effect::Over);
    }

    fn stop(&mut self, now: Instant, reason: Reason, effects: &mut Vec<Effect>) {
        match self.phase {
            WarmPhase::Arming { .. } => self.withdraw(effects),
            WarmPhase::Leading { term, by, .. } => {
                let latest = now.after(self.limits.stop);
                let kill_at = self.times.map_or(latest, |times| times.kill_at);
                let until = latest.min(kill_at.before(self.limits.least_to_stop));
                self.phase = WarmPhase::Stopping { term, by, until };
                let (stop_by, kill_at) = (until.into(), kill_at.into());
                let stop = ToApp::Stop { epoch: Decimal(term.epoch), reason, stop_by, kill_at };
                effects.extend([Effect::Ends(EndReason::Asked(reason)), Effect::Send(by, stop)]);
            }
            WarmPhase::Expired { .. } => {
                if self.keeps() {
                    effects.push(Effect::Ends(EndReason::Asked(reason)));
                }
                self.stopped(EndReason::Asked(reason), effects);
            }
            WarmPhase::Standby | WarmPhase::Stopping { .. } | WarmPhase::Ending { .. } => {}
        }
    }

    fn refuse(&mut self, connection: Connection, reason: String, effects: &mut Vec<Effect>) {
        if self.connections.contains_key(&connection) {
            effects.push(Effect::Send(connection, ToApp::Refused { reason }));
            self.closed(connection, EndReason::Garbled, effects);
        }
    }

    fn closed(&mut self, connection: Connection, why: EndReason, effects: &mut Vec<Effect>) {
        if self.connections.remove(&connection).is_none() {
            return;
        }
        effects.push(Effect::Close(connection));
        self.ready.retain(|ready| *ready != connection);
        match self.phase {
            WarmPhase::Arming { by, .. } if by == connection => self.withdraw(effects),
            WarmPhase::Leading { by, .. } | WarmPhase::Stopping { by, .. } if by == connection => {
                self.end(why, Effect::TermTree, effects);
            }
            WarmPhase::Expired { by, .. } if by == connection => {
                self.end(EndReason::Stopped, Effect::TermTree, effects)
            }
            _ => {}
        }
    }

    fn end(&mut self, why: EndReason, how: Effect, effects: &mut Vec<Effect>) {
        let term = self.phase.term();
        // After `stop`, its reason stands.
        if !matches!(self.phase, WarmPhase::Stopping { .. }) || !matches!(why, EndReason::Stopped) {
            effects.extend(term.map(|_| Effect::Ends(why)));
        }
        self.phase = WarmPhase::Ending { term };
        effects.push(how);
    }
}

#[cfg(test)]
mod tests;
