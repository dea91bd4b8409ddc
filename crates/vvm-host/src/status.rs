//! [`HostStatus`]: the host writes it; HTTP, logs and the guardian read it. Changes of the [`Role`] can be awaited, and
//! become `tracing` events with fields. The status at one moment becomes the JSON of `/status`.

#[macro_use]
mod log;
mod candidate;
mod recent;
#[cfg(feature = "opentelemetry")]
mod reporter;
mod role;
mod seen;
mod snapshot;
mod storage_health;
mod telemetry;

#[cfg(feature = "opentelemetry")]
pub(crate) use reporter::Reporter;
pub(crate) use seen::SeenLeader;
#[cfg(feature = "opentelemetry")]
pub(crate) use telemetry::BOUNDS;
pub(crate) use telemetry::{Call, FailureKind, NO_ANSWER, Telemetry, loss_word};

pub use candidate::Candidate;
pub use role::{PendingRestart, Role, SlotLeadership, WhyStopping};

use crate::{history::UnwrittenEnds, successor::UdpPeerLink, timeline::Timeline};
use ielections::{Loss, Slot, Standing};
use log::{log_new_leader, log_role};
use parking_lot::Mutex;
use recent::Recent;
use seen::OtherLeaders;
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use storage_health::StorageHealth;
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};
use vvm_storage::{ElectionKey, LateEnd, SlotNumber};

/// The status of a host, which it may outlive: it keeps no socket. Reading and writing never wait.
pub struct HostStatus {
    pub(crate) candidate: Candidate,
    pub(crate) clock: Arc<dyn Clock>,
    began: Instant,
    role: watch::Sender<Role>,
    pub(crate) telemetry: Telemetry,
    others: Mutex<OtherLeaders>,
    /// When the storage last answered, in the clock's nanoseconds; zero if it never did.
    answered_at: AtomicU64,
    storage: Mutex<StorageHealth>,
    work_ended: Mutex<Option<Arc<str>>>,
    pub(crate) unwritten_ends: UnwrittenEnds,
    paused_by: Mutex<Option<Arc<str>>>,
    location: Mutex<Option<String>>,
    /// The last changes, the newest first, for the page.
    changes: Mutex<VecDeque<(Instant, String)>>,
    recent: Mutex<Recent>,
    successor: OnceLock<Weak<UdpPeerLink>>,
    #[cfg(feature = "opentelemetry")]
    pub(crate) reporter: OnceLock<Reporter>,
}

const CHANGES: usize = 50;

impl HostStatus {
    pub(crate) fn new(candidate: Candidate, clock: Arc<dyn Clock>) -> Self {
        Self {
            candidate,
            began: clock.now(),
            clock,
            role: watch::Sender::new(Role::Opening),
            telemetry: Telemetry::default(),
            others: Mutex::default(),
            answered_at: AtomicU64::new(0),
            storage: Mutex::default(),
            work_ended: Mutex::default(),
            unwritten_ends: UnwrittenEnds::default(),
            paused_by: Mutex::default(),
            location: Mutex::default(),
            changes: Mutex::default(),
            recent: Mutex::default(),
            successor: OnceLock::new(),
            #[cfg(feature = "opentelemetry")]
            reporter: OnceLock::new(),
        }
    }

    pub(crate) fn shows_link(&self, link: &Arc<UdpPeerLink>) {
        self.successor.get_or_init(|| Arc::downgrade(link));
    }

    pub(crate) fn link(&self) -> Option<Arc<UdpPeerLink>> {
        self.successor.get()?.upgrade()
    }

    pub(crate) fn storage_opened(&self, location: Option<String>) {
        *self.location.lock() = location;
    }

    fn note(&self, change: String) {
        let mut changes = self.changes.lock();
        changes.push_front((self.clock.now(), change));
        changes.truncate(CHANGES);
    }

    /// Returns what this process does now.
    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    /// Returns the role as it changes. A receiver sees the last of several quick changes.
    pub fn roles(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Returns the picture of the page, as this process saw it: it asks no storage.
    pub(crate) fn timeline(&self) -> Timeline {
        let now = (&self.role(), self.clock.now());
        self.recent.lock().timeline(&self.candidate, self.began, now)
    }

    pub(crate) fn activity(&self) -> String {
        let role = self.role();
        let paused_by = self.paused_by.lock();
        match (&role, &*paused_by) {
            (Role::Campaigning, Some(by)) => format!("paused by {by}"),
            _ => role.to_string(),
        }
    }

    pub(crate) fn paused(&self, by: Option<&str>) {
        *self.paused_by.lock() = by.map(Arc::from);
    }

    /// Returns the leadership and how much time is left of it. `None` unless the work may go on.
    pub(crate) fn leads(&self) -> Option<(SlotLeadership, Duration)> {
        let Role::Leading(leading) = self.role() else { return None };
        let margin = leading.standing.remaining();
        (!margin.is_zero()).then_some((leading, margin))
    }

    /// Fails with the reason if this process does not lead, and could not if a slot were free. A standby that reaches
    /// its storage is ready: a roll-out that waits for readiness would never finish otherwise. A storage that can be
    /// read may refuse every write (disk full, no quorum), so a failed claim or renewal counts until the next answer.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let role = self.role();
        let problem = self.storage.lock();
        let reason = match &role {
            Role::Opening => match &problem.last {
                Some(problem) => format!("{role}: {problem}"),
                None => role.to_string(),
            },
            Role::Unready | Role::Stopping { .. } | Role::Ended { .. } => role.to_string(),
            Role::Campaigning | Role::Starting(_) | Role::Leading(_) | Role::Idling { .. } => {
                let silent_for = self.unanswered_for();
                let is_silent = silent_for > self.candidate.ttl.get();
                if is_silent {
                    let reason = problem.last.iter().map(|last| format!(": {last}")).collect::<String>();
                    format!("the storage has been of no use for {} s{reason}", silent_for.as_secs())
                } else if let Some(failure) = &problem.write {
                    format!("the last claim or renewal failed: {failure}")
                } else {
                    return Ok(());
                }
            }
        };
        Err(reason)
    }

    pub(crate) fn since_renewal(&self, standing: &Standing) -> Duration {
        self.clock.now().since(standing.renewed_at())
    }

    pub(crate) fn unanswered_for(&self) -> Duration {
        let answered_at = Instant::from_nanos(self.answered_at.load(Ordering::Relaxed));
        answered_at.max(self.began).until(self.clock.now())
    }

    /// Returns a line about the leader of the first slot that another process holds, as last seen.
    pub fn leader_seen(&self) -> Option<String> {
        self.others().first().map(SeenLeader::to_string)
    }

    pub(crate) fn others(&self) -> Vec<SeenLeader> {
        self.others.lock().list(self.clock.now())
    }

    pub(crate) fn is_unready(&self) {
        self.change(|_| Some(Role::Unready));
    }

    pub(crate) fn campaigns(&self) {
        self.change(|_| Some(Role::Campaigning));
    }

    pub(crate) fn starts(&self, slot: u32, standing: Standing) {
        self.telemetry.leaderships.inc();
        *self.work_ended.lock() = None;
        self.others.lock().forget(slot);
        let leading = SlotLeadership { slot, standing, since: self.clock.now() };
        #[cfg(feature = "opentelemetry")]
        self.reporter.get().into_iter().for_each(|reporter| reporter.begin_span(&self.candidate, &leading));
        self.change(|_| Some(Role::Starting(leading)));
    }

    #[cfg(feature = "opentelemetry")]
    pub(crate) fn leadership_ended(&self) {
        let Some(reporter) = self.reporter.get() else { return };
        reporter.end_span(&self.role(), &self.how_work_ended());
    }

    pub(crate) fn is_started(&self) {
        if matches!(self.role(), Role::Starting(_)) {
            self.works();
        }
    }

    /// Records, for the history, how the work of this leadership ended.
    pub fn work_ended(&self, how: impl Into<Arc<str>>) {
        *self.work_ended.lock() = Some(how.into());
    }

    pub(crate) fn late_ends(&self) -> Vec<(SlotNumber, LateEnd)> {
        let unwritten = self.unwritten_ends.lock();
        unwritten.iter().filter_map(|(slot, ends)| Some((*slot, ends.last()?.late_end()?))).collect()
    }

    /// Returns how the work of this leadership ended, for the history. A loss comes first: it is the cause.
    pub(crate) fn how_work_ended(&self) -> Arc<str> {
        let noted = self.work_ended.lock().clone();
        match (self.role(), noted) {
            (Role::Stopping { why: why @ (WhyStopping::GuardianDied | WhyStopping::GivenUp(_)), .. }, _) => {
                why.to_string().into()
            }
            (Role::Stopping { why: why @ WhyStopping::Lost(_), .. }, Some(noted)) => {
                format!("{why}; {noted}").into()
            }
            (_, Some(noted)) => noted,
            (Role::Stopping { why, .. }, None) => why.to_string().into(),
            (role, None) => role.to_string().into(),
        }
    }

    /// Records that the work has started, if it was starting or waiting for a restart. Counts a restart.
    pub fn works(&self) {
        let mut is_restart = false;
        self.change(|role| {
            is_restart = matches!(role, Role::Idling { .. });
            let (Role::Starting(leading) | Role::Idling { leading, .. }) = role else { return None };
            Some(Role::Leading(leading.clone()))
        });
        if is_restart {
            self.telemetry.restarts.inc();
        }
    }

    /// Records the exit status of the command that is the work, as a shell would report it.
    pub fn exited(&self, status: u8) {
        *self.telemetry.last_exit_status.lock() = Some(status);
    }

    /// Records that a check of the work failed.
    pub fn check_failed(&self) {
        self.telemetry.check_failures.inc();
    }

    /// Records that the work has ended and the leadership is kept. Nothing changes unless there was work.
    pub fn idles(&self, idle: PendingRestart) {
        self.change(|role| {
            let Role::Leading(leading) = role else { return None };
            Some(Role::Idling { leading: leading.clone(), idle })
        });
    }

    /// Records that the work is to stop or has stopped by itself. The first reason stands. Without work: nothing.
    pub fn stops(&self, why: WhyStopping) {
        let changed = self.change(|role| {
            let (Role::Starting(leading) | Role::Leading(leading) | Role::Idling { leading, .. }) = role
            else {
                return None;
            };
            Some(Role::Stopping { leading: leading.clone(), why: why.clone() })
        });
        if changed && let WhyStopping::Lost(loss) = &why {
            self.telemetry.lost(loss);
        }
    }

    /// Records that a request to stop was on its way when the work ended: its end was a stop, and not its own.
    pub fn was_stopped(&self) {
        self.change(|role| match role {
            Role::Stopping { leading, why: WhyStopping::WorkEnded } => {
                Some(Role::Stopping { leading: leading.clone(), why: WhyStopping::Asked })
            }
            _ => None,
        });
    }

    fn change(&self, to: impl FnOnce(&Role) -> Option<Role>) -> bool {
        let (now, holder) = (self.clock.now(), self.candidate.holder.as_str());
        let changed = self.role.send_if_modified(|role| {
            let new = to(role);
            new.is_some_and(|new| {
                self.recent.lock().changed(holder, (role, &new), now);
                *role = new;
                true
            })
        });
        if changed {
            let role = self.role();
            self.note(role.to_string());
            log_role(&self.candidate, &role);
        }
        changed
    }

    /// [`stops`](Self::stops) because of the loss, if the leadership is lost, else because of `otherwise`.
    pub fn stops_by(&self, standing: &Standing, otherwise: WhyStopping) {
        if !self.stops_if_lost(standing) {
            self.stops(otherwise);
        }
    }

    pub(crate) fn stops_if_lost(&self, standing: &Standing) -> bool {
        // Otherwise this process ended its leadership itself.
        let is_loss = |loss: &&Loss| !matches!(loss, Loss::Closing | Loss::HandedBack);
        let loss = standing.loss().filter(is_loss);
        loss.into_iter().for_each(|loss| self.stops(WhyStopping::Lost(loss.clone())));
        loss.is_some()
    }

    /// Records that the host ends. The first reason stands.
    pub fn ends(&self, why: impl Into<Arc<str>>) {
        if !matches!(self.role(), Role::Ended { .. }) {
            self.change(|_| Some(Role::Ended { why: why.into() }));
        }
    }

    pub(crate) fn renewed(&self, sent_at: Instant) {
        let latency = sent_at.until(self.clock.now());
        self.telemetry.renewals.record(latency);
        #[cfg(feature = "opentelemetry")]
        self.reporter.get().into_iter().for_each(|reporter| reporter.record_renewal(latency));
        let (name, latency_ms) = (self.candidate.name.as_str(), latency.as_secs_f64() * 1e3);
        log!(debug, event = "renewed", latency_ms, "{name}: renewed in {latency:?}");
    }

    pub(crate) fn saw(&self, key: &ElectionKey, found: &Slot) {
        let leads = |leading: &SlotLeadership| {
            let (incarnation, epoch) = (leading.standing.incarnation(), leading.standing.epoch());
            found.entry().is_some_and(|entry| entry.is_of(incarnation, epoch))
        };
        // A renewal without an answer is read back.
        if self.role().leadership().is_some_and(leads) {
            return;
        }
        let slot = key.slot.get().get();
        let now = self.clock.now();
        let change = self.others.lock().saw(slot, found, now);
        if let Some(entry) = found.entry() {
            let holder = entry.holder.as_str();
            self.recent.lock().saw(slot, (holder, entry.epoch), change.was_written, now);
        }
        if change.has_new_leader
            && matches!(self.role(), Role::Campaigning)
            && let Some(leader) = self.others().into_iter().find(|seen| seen.slot == slot)
        {
            self.note(leader.to_string());
            log_new_leader(&self.candidate, &leader);
        }
        if change.was_written {
            // The storage takes writes, and a standby makes none while another process renews: without this,
            // one failed claim would count as long as that process leads.
            let mut problem = self.storage.lock();
            problem.writes_work();
            let is_over = problem.is_over();
            drop(problem);
            self.log_if(is_over);
        }
    }
}

impl fmt::Debug for HostStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostStatus({}: {})", self.candidate.name, self.role())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
