//! [`Tree`]: the processes of a warm app. It tells the [`Machine`] what is heard, does what that decides, and reports.

use super::{AcquiredLeadership, CommandRunner, Progress, WarmApp, socket::SocketEvent};
use crate::{leadership::Leadership, shown::millis};
use rustix::process::Pid;
use std::{
    collections::{HashMap, HashSet},
    fmt, fs, io,
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use vvm_cli::warm::{
    machine::{AppEvent, Connection, Effect, EndReason, Machine},
    protocol::{FromApp, LONGEST_LINE, Reason, ToApp, VERSION},
};
use vvm_clock::{DisplayDuration, Instant};
use vvm_containment::Family;
use vvm_host::{
    operate::ResourceLimit,
    status::{Role, WhyStopping},
};

/// An app that is not ready so long after its start is reported, once.
pub(super) const SILENT_START: Duration = Duration::from_secs(2);

/// Each kind of refused connection or message is logged so often at most: any user may connect without a pause.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

#[derive(Default, Debug)]
pub(super) struct RefusalLog(HashMap<&'static str, Refusals>);

#[derive(Debug)]
struct Refusals {
    due: Instant,
    unlogged: u64,
}

impl RefusalLog {
    /// Counts a refusal. If a line is due, returns what it says about those that were not logged.
    fn line(&mut self, event: &'static str, now: Instant) -> Option<String> {
        let kind = self.0.entry(event).or_insert(Refusals { due: Instant::ORIGIN, unlogged: 0 });
        if now < kind.due {
            kind.unlogged += 1;
            return None;
        }
        kind.due = now.after(LOGGED_EVERY);
        Some(match std::mem::take(&mut kind.unlogged) {
            0 => String::new(),
            count => format!(" (and {count} more that were not logged)"),
        })
    }
}

const NAMED: usize = 8;

fn living(pid: Pid) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name in parentheses may contain parentheses (proc(5)).
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    (!tail.starts_with(" Z")).then(|| format!("{pid} ({name})"))
}

pub(super) struct Tree<'a> {
    pub(super) machine: Machine,
    pub(super) app: &'a mut WarmApp,
    pub(super) stop: CancellationToken,
    pub(super) kill: CancellationToken,
    pub(super) keeper: Pid,
    pub(super) led: Option<AcquiredLeadership>,
    /// The processes of connections over which nothing was said yet.
    pub(super) silent: HashMap<Connection, Pid>,
    /// The processes before `lead`, if they live on after `stopped`.
    pub(super) standbys: HashSet<Pid>,
    pub(super) ending: Option<EndReason>,
}

impl Tree<'_> {
    pub(super) fn on(&mut self, event: AppEvent) {
        for effect in self.machine.on(self.app.runner.clock.now(), event) {
            self.apply(effect);
        }
    }

    fn apply(&mut self, effect: Effect) {
        let CommandRunner { clock, args, .. } = &self.app.runner;
        let (name, holder) = (self.app.runner.election_name(), self.app.runner.holder.as_str());
        match effect {
            Effect::Greet(connection) => {
                let hello = ToApp::Hello {
                    version: VERSION,
                    name: name.into(),
                    holder: holder.into(),
                    ttl_ms: millis(args.candidate.ttl.get()),
                    now: clock.now().into(),
                    alive_within_ms: args.alive_within.map(millis),
                };
                self.app.socket.send(connection, hello.to_line(), false);
            }
            Effect::Send(connection, message) => {
                let is_replaceable = matches!(message, ToApp::Renewed { .. });
                self.app.socket.send(connection, message.to_line(), is_replaceable);
                if let ToApp::Refused { reason } = message {
                    self.refused(&reason);
                }
            }
            Effect::Close(connection) => self.app.socket.close(connection),
            Effect::Ready(is_ready) => {
                self.app.ready.send_replace(is_ready);
            }
            Effect::Leads => {
                if let Some(led) = &self.led {
                    led.progress.send_replace(Progress::Leads);
                }
            }
            Effect::Ends(ending) => self.ends(ending),
            Effect::Over => {
                if let Some(led) = self.led.take() {
                    led.progress.send_replace(Progress::Over);
                }
            }
            Effect::Keeps => self.keeps(),
            Effect::TermTree => self.stop.cancel(),
            Effect::KillTree => self.kill.cancel(),
        }
    }

    pub(super) fn tell_what_is_missing(&self) {
        let Some(reason) = self.machine.missing() else { return };
        let (name, holder) = (self.app.runner.election_name(), self.app.runner.holder.as_str());
        tracing::info!(
            target: "vvm", event = "warm_waits", name, holder, reason,
            "{name}: waiting for the app, {} after its start: {reason}", DisplayDuration(SILENT_START)
        );
    }

    fn warn(
        &mut self,
        event: &'static str,
        pid: Option<Pid>,
        reason: Option<&str>,
        line: fmt::Arguments<'_>,
    ) {
        let Some(more) = self.app.refusals.line(event, self.app.runner.clock.now()) else { return };
        let (name, holder) = (self.app.runner.election_name(), self.app.runner.holder.as_str());
        let pid = pid.map(Pid::as_raw_pid);
        tracing::warn!(target: "vvm", event, name, holder, pid, reason, "{name}: {line}{more}");
    }

    fn refused(&mut self, reason: &str) {
        let line = format_args!("a connection of the app is refused: {reason}");
        self.warn("warm_refused", None, Some(reason), line);
    }

    /// The first reason stands, unless the app did not do as it was asked to.
    fn ends(&mut self, ending: EndReason) {
        let status = &self.app.runner.status;
        let former = self.ending.take();
        let is_first = former.is_none();
        self.ending = Some(former.filter(|first| !first.is_wanted()).unwrap_or_else(|| ending.clone()));
        let Some(AcquiredLeadership { leadership: Leadership { name, slot, epoch, .. }, .. }) = &self.led
        else {
            return;
        };
        let reason = match status.role() {
            // Its end follows from that: the keeper kills it.
            Role::Stopping { why: WhyStopping::GuardianDied, .. } if !is_first => return,
            Role::Stopping { why: why @ WhyStopping::GuardianDied, .. } => why.to_string(),
            Role::Stopping { why, .. } if ending == EndReason::Asked(Reason::Terminating) => why.to_string(),
            _ => ending.to_string(),
        };
        let (holder, epoch) = (self.app.runner.holder.as_str(), epoch.get());
        tracing::info!(
            target: "vvm", event = "warm_ends", name, holder, slot, epoch, reason,
            "{name} slot {slot}: stopping the app: {reason}"
        );
        status.work_ended(reason.clone());
        if ending.is_of_the_app() {
            status.stops(WhyStopping::GivenUp(reason.into()));
        }
    }

    /// Reports that the app lives on. What the work may have left behind is named: nothing else ends it.
    fn keeps(&mut self) {
        self.ending = None;
        let Some(AcquiredLeadership { leadership: Leadership { name, slot, epoch, .. }, .. }) = &self.led
        else {
            return;
        };
        let began = self.processes().into_iter().filter(|pid| !self.standbys.contains(pid));
        let began: Vec<_> = began.filter_map(living).collect();
        let (holder, slot, epoch, count) = (self.app.runner.holder.as_str(), *slot, epoch.get(), began.len());
        let more = began.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let processes = began[..began.len().min(NAMED)].join(", ") + &more;
        let (event, line) = ("warm_stopped", "the app has stopped its work, and stands by");
        if began.is_empty() {
            tracing::info!(target: "vvm", event, name, holder, slot, epoch, count, "{name} slot {slot}: {line}");
        } else {
            tracing::warn!(
                target: "vvm", event, name, holder, slot, epoch, count, processes,
                "{name} slot {slot}: {line}. Started since it leads, and still running: {processes}"
            );
        }
    }

    pub(super) fn processes(&self) -> Vec<Pid> {
        let family = Family::of_this_process().map(|family| family.tree_of(self.keeper));
        family.unwrap_or_default().into_iter().map(|member| member.pid).collect()
    }

    /// Returns the event that was heard, if it is one for the machine.
    pub(super) fn read(&mut self, heard: io::Result<SocketEvent>) -> Option<AppEvent> {
        match heard.ok()? {
            SocketEvent::Connected(connection, pid) => {
                self.silent.insert(connection, pid);
                return Some(AppEvent::Connected(connection));
            }
            SocketEvent::Line(connection, line) => {
                self.silent.remove(&connection);
                return Some(match FromApp::of_line(&line) {
                    Ok(message) => AppEvent::Said(connection, message),
                    Err(refusal) => AppEvent::Garbled(connection, refusal.to_string()),
                });
            }
            SocketEvent::TooLong(connection) => {
                self.silent.remove(&connection);
                let reason =
                    format!("a line of more than {LONGEST_LINE} bytes: send large data by other means");
                return Some(AppEvent::Garbled(connection, reason));
            }
            SocketEvent::Closed(connection) => {
                // A client that refuses to lead can't say so: it has not said `hello`.
                if let Some(pid) = self.silent.remove(&connection) {
                    let line = format_args!(
                        "process {pid} of the app has left without \"hello\". Its own output says why: perhaps a \
                         client of another release, or a time namespace that is not vvm's"
                    );
                    self.warn("warm_silent", Some(pid), None, line);
                }
                return Some(AppEvent::Closed(connection));
            }
            SocketEvent::Uncontained(pid) => {
                let line = format_args!(
                    "process {pid} has connected to VVM_SOCKET, and is not of the app: refused. Start it by \
                     `vvm run --warm -- PROGRAM`, and not through another service"
                );
                self.warn("warm_uncontained", Some(pid), None, line);
            }
            SocketEvent::Foreign(_, pid) => {
                let line = format_args!(
                    "process {pid} has sent a message over a connection of another process: ignored; close the \
                     socket in forked children"
                );
                self.warn("warm_foreign", Some(pid), None, line);
            }
            SocketEvent::Refused(reason) => self.refused(&reason),
            SocketEvent::NotAccepted(errno) => {
                self.refused(&format!("{}; it waits until that is over", ResourceLimit::from(errno)));
            }
            SocketEvent::Vanished => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_logged_once_per_interval() {
        let mut log = RefusalLog::default();
        let began = Instant::ORIGIN.after(LOGGED_EVERY);
        let lines = (0..=60_000)
            .filter_map(|millis| log.line("warm_uncontained", began.after(Duration::from_millis(millis))));
        let lines = lines.collect::<Vec<_>>();
        assert_eq!((lines.len(), lines[0].as_str()), (7, ""));
        assert_eq!(lines[1], " (and 9999 more that were not logged)");
        assert_eq!(log.line("warm_foreign", began).as_deref(), Some(""), "another kind");
    }
}
