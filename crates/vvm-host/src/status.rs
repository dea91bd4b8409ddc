//! The status of a host: one value that the host writes, and that HTTP, logs and the guardian read.
//!
//! What lives here: the [`HostStatus`], with its [`Role`] (whose changes can be waited for), its
//! [`Telemetry`], what was last seen of others, and whether the storage answers. What does not: who shows it
//! (an HTTP server, a service manager's status line, a socket, logs), and anything about workers or command
//! lines, so that a program that embeds elections can have the same value.

mod histogram;
mod role;
mod seen;
mod snapshot;
mod telemetry;
mod told;

pub(crate) use histogram::Histogram;
pub use role::{Idle, IdleUntil, Leading, Role, WhyStopping};
pub(crate) use seen::Seen;
pub(crate) use telemetry::{Call, Failure, Telemetry};

use ielections::{Holder, Loss, Standing, Ttl};
use seen::Others;
use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// Who stands for what: fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What is led.
    pub name: String,
    /// Who we are, for people.
    pub holder: Holder,
    /// How many may lead at once.
    pub slots: NonZeroU32,
    /// The leadership duration.
    pub ttl: Ttl,
}

/// How this process stands. Reading never waits for a writer, and writing never waits.
pub struct HostStatus {
    candidate: Candidate,
    clock: Arc<dyn Clock>,
    began: Instant,
    role: watch::Sender<Role>,
    telemetry: Telemetry,
    others: Mutex<Others>,
    /// When the storage was last of use, in the clock's nanoseconds; zero if it never was.
    answered_at: AtomicU64,
    /// What is in its way since then.
    trouble: Mutex<Option<Arc<str>>>,
    /// How the work of this leadership ended, in words for the history.
    work_ended: Mutex<Option<Arc<str>>>,
}

/// Whether this process could lead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It leads, or would if a slot were free.
    Ready,
    /// It would not, for this reason.
    NotReady(String),
}

impl HostStatus {
    /// Of a process that has yet to open its storage.
    pub(crate) fn new(candidate: Candidate, clock: Arc<dyn Clock>) -> Self {
        Self {
            candidate,
            began: clock.now(),
            clock,
            role: watch::Sender::new(Role::Opening),
            telemetry: Telemetry::default(),
            others: Mutex::default(),
            answered_at: AtomicU64::new(0),
            trouble: Mutex::default(),
            work_ended: Mutex::default(),
        }
    }

    /// Who stands for what.
    pub(crate) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// What this process does now.
    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    /// The role, as it changes: one value for each change that is still the last when it is looked at.
    pub fn roles(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// What was counted so far.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// How long ago this value was made.
    pub(crate) fn age(&self) -> Duration {
        self.began.until(self.clock.now())
    }

    /// The leadership, and how much of it is left at the moment of asking; none unless the work may go on.
    pub(crate) fn leads(&self) -> Option<(Leading, Duration)> {
        let Role::Leading(leading) = self.role() else { return None };
        let margin = leading.standing.remaining();
        (!margin.is_zero()).then_some((leading, margin))
    }

    /// Whether this process could lead. A standby that reaches its storage is ready, or nothing could ever be
    /// rolled out.
    pub(crate) fn readiness(&self) -> Readiness {
        let role = self.role();
        match &role {
            Role::Opening | Role::Stopping { .. } | Role::Ended { .. } => {
                Readiness::NotReady(match (&role, self.trouble()) {
                    (Role::Opening, Some(trouble)) => format!("{role}: {trouble}"),
                    _ => role.to_string(),
                })
            }
            Role::Campaigning | Role::Starting(_) | Role::Leading(_) | Role::Idling { .. } => {
                let useless = self.useless_for();
                if useless <= self.candidate.ttl.get() {
                    return Readiness::Ready;
                }
                let trouble = self.trouble().map(|trouble| format!(": {trouble}")).unwrap_or_default();
                let seconds = useless.as_secs();
                Readiness::NotReady(format!("the storage has been of no use for {seconds} s{trouble}"))
            }
        }
    }

    /// How long the storage has been of no use: since its last answer, or since we began.
    pub(crate) fn useless_for(&self) -> Duration {
        let answered_at = Instant::from_nanos(self.answered_at.load(Ordering::Relaxed));
        answered_at.max(self.began).until(self.clock.now())
    }

    /// What is in the way of the storage, since it was last of use.
    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who leads, as far as we have seen, ourselves not included.
    pub(crate) fn others(&self) -> Vec<Seen> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).list(self.clock.now())
    }

    /// The present moment, on the clock that everything here is counted on.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// A campaign begins.
    pub(crate) fn campaigns(&self) {
        self.becomes(Role::Campaigning);
    }

    /// A slot was won, and the work is about to start.
    pub(crate) fn starts(&self, slot: u32, standing: Standing) {
        self.telemetry.led();
        *self.work_ended.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).forget(slot);
        self.becomes(Role::Starting(Leading { slot, standing, since: self.clock.now() }));
    }

    /// All services have started. Nothing changes unless they were starting.
    pub(crate) fn is_started(&self) {
        if matches!(self.role(), Role::Starting(_)) {
            self.works();
        }
    }

    /// Takes note, for the history, of how the work of this leadership ended.
    pub fn work_ended(&self, how: impl Into<Arc<str>>) {
        *self.work_ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(how.into());
    }

    /// Returns how the work of this leadership ended, in words for the history.
    pub(crate) fn how_work_ended(&self) -> Arc<str> {
        let noted = self.work_ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (self.role(), noted) {
            (Role::Stopping { why: why @ (WhyStopping::GuardianDied | WhyStopping::GivenUp(_)), .. }, _) => {
                why.to_string().into()
            }
            (_, Some(noted)) => noted,
            (Role::Stopping { why, .. }, None) => why.to_string().into(),
            (role, None) => role.to_string().into(),
        }
    }

    /// The work has started. Nothing changes unless it was starting, or to be started again.
    pub fn works(&self) {
        let changed = self.role.send_if_modified(|role| {
            let (Role::Starting(leading) | Role::Idling { leading, .. }) = role else { return false };
            *role = Role::Leading(leading.clone());
            true
        });
        if changed {
            told::role(&self.candidate, &self.role());
        }
    }

    /// The work has ended, and the leadership is kept. Nothing changes unless there was work.
    pub fn idles(&self, idle: Idle) {
        let changed = self.role.send_if_modified(|role| {
            let Role::Leading(leading) = role else { return false };
            *role = Role::Idling { leading: leading.clone(), idle };
            true
        });
        if changed {
            told::role(&self.candidate, &self.role());
        }
    }

    /// The work is to stop, or has stopped by itself. The first reason stands; nothing changes unless there
    /// is work.
    pub fn stops(&self, why: WhyStopping) {
        // Telling the reason apart from the role that carries it would count a loss twice.
        let changed = self.role.send_if_modified(|role| {
            let (Role::Starting(leading) | Role::Leading(leading) | Role::Idling { leading, .. }) = role
            else {
                return false;
            };
            *role = Role::Stopping { leading: leading.clone(), why: why.clone() };
            true
        });
        if changed {
            if let WhyStopping::Lost(loss) = &why {
                self.telemetry.lost(loss);
            }
            told::role(&self.candidate, &self.role());
        }
    }

    /// [`stops`](Self::stops) for whatever made it so: the loss, if the leadership is lost, else `otherwise`.
    pub fn stops_by(&self, standing: &Standing, otherwise: WhyStopping) {
        self.stops(match standing.loss() {
            // These are what we do ourselves.
            None | Some(Loss::Closing | Loss::HandedBack) => otherwise,
            Some(loss) => WhyStopping::Lost(loss.clone()),
        });
    }

    /// Everything is over. The first reason stands.
    pub fn ends(&self, why: impl Into<Arc<str>>) {
        if !matches!(self.role(), Role::Ended { .. }) {
            self.becomes(Role::Ended { why: why.into() });
        }
    }

    fn becomes(&self, role: Role) {
        told::role(&self.candidate, &role);
        self.role.send_replace(role);
    }

    /// A renewal that was sent then is confirmed now.
    pub(crate) fn renewed(&self, sent_at: Instant) {
        let latency = sent_at.until(self.clock.now());
        self.telemetry.renewed(latency);
        told::renewal(latency);
    }

    /// The storage answered, with something that a candidate can use.
    pub(crate) fn storage_answered(&self) {
        self.answered_at.fetch_max(self.clock.now().as_nanos(), Ordering::Relaxed);
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = None;
    }

    /// A call failed.
    pub(crate) fn storage_failed(&self, call: Call, failure: Failure, what: &dyn fmt::Display) {
        self.telemetry.failed(call, failure);
        self.storage_is_in_trouble(what);
    }

    /// Something is in the way of the storage, be it only of opening it.
    pub(crate) fn storage_is_in_trouble(&self, what: &dyn fmt::Display) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = Some(what.to_string().into());
    }

    /// This was seen to stand in a slot.
    pub(crate) fn saw(&self, slot: u32, found: &ielections::Slot) {
        let now = self.clock.now();
        self.others.lock().unwrap_or_else(PoisonError::into_inner).saw(slot, found, now);
    }
}

impl fmt::Debug for HostStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostStatus({}: {})", self.candidate.name, self.role())
    }
}

#[cfg(test)]
mod tests;
