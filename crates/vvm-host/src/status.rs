//! [`HostStatus`]: the host writes it; HTTP, logs and the guardian read it.
//!
//! It has the [`Role`], whose changes can be awaited, the counters, the leaders last seen in other slots, and
//! whether the storage works. Changes of the role become `tracing` events with fields, and the status at one
//! moment becomes the JSON of `/status`.

mod candidate;
mod recent;
#[cfg(feature = "opentelemetry")]
mod reporter;
mod role;
mod seen;
mod telemetry;

#[cfg(feature = "opentelemetry")]
pub(crate) use reporter::Reporter;
pub(crate) use seen::{EpochTime, SeenLeader};
#[cfg(feature = "opentelemetry")]
pub(crate) use telemetry::BOUNDS;
pub(crate) use telemetry::{Call, FailureKind, NO_ANSWER, Telemetry, loss_word};

pub use candidate::Candidate;
pub use role::{PendingRestart, Role, SlotLeadership, WhyStopping};

use crate::{history::UnwrittenEnds, successor::UdpPeerLink, timeline::Timeline};
use ielections::{Loss, Slot, Standing};
use parking_lot::Mutex;
use recent::Recent;
use seen::OtherLeaders;
use serde_json::{Map, Value, json};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};
use vvm_storage::{ElectionKey, LateEnd, SlotNumber};

macro_rules! log {
    ($level:ident, $($fields:tt)*) => { tracing::$level!(target: "vvm", $($fields)*) };
}

/// The status of a host. Reading and writing never wait.
pub struct HostStatus {
    pub(crate) candidate: Candidate,
    pub(crate) clock: Arc<dyn Clock>,
    began: Instant,
    role: watch::Sender<Role>,
    pub(crate) telemetry: Telemetry,
    others: Mutex<OtherLeaders>,
    /// When the storage last answered, in the clock's nanoseconds; zero if it never did.
    answered_at: AtomicU64,
    problem: Mutex<Problem>,
    work_ended: Mutex<Option<Arc<str>>>,
    pub(crate) unwritten_ends: UnwrittenEnds,
    paused_by: Mutex<Option<Arc<str>>>,
    location: Mutex<Option<String>>,
    /// The last changes, the newest first, for the page.
    changes: Mutex<VecDeque<(Instant, String)>>,
    recent: Mutex<Recent>,
    /// If this host takes part in succession.
    pub(crate) successor: OnceLock<Arc<UdpPeerLink>>,
    #[cfg(feature = "opentelemetry")]
    pub(crate) reporter: OnceLock<Reporter>,
}

const CHANGES: usize = 50;

#[derive(Debug, Default)]
struct Problem {
    /// The last failure, until the storage answers.
    last: Option<Arc<str>>,
    /// The failure of the last claim or renewal, until one is answered, or another process has written.
    write: Option<Arc<str>>,
    reads_failed: u32,
    writes_failed: u32,
    /// Since when calls fail, and when that was logged last.
    since: Option<Instant>,
    logged_at: Option<Instant>,
}

/// How many calls in a row must fail before it is logged. Single calls may fail and are repeated.
const FAILURES_IN_A_ROW: u32 = 2;

const REMINDER: Duration = Duration::from_secs(60);

impl Problem {
    fn logs(&mut self, now: Instant) -> Option<Instant> {
        let since = *self.since.get_or_insert(now);
        let is_due = self.logged_at.is_none_or(|at| at.until(now) >= REMINDER);
        is_due.then(|| self.logged_at = Some(now)).map(|()| since)
    }

    fn writes_work(&mut self) {
        (self.write, self.writes_failed) = (None, 0);
    }

    fn is_over(&mut self) -> bool {
        if self.reads_failed.max(self.writes_failed) == 0 {
            self.since = None;
        }
        self.reads_failed.max(self.writes_failed) < FAILURES_IN_A_ROW && self.logged_at.take().is_some()
    }

    fn in_a_row(&mut self, call: Call) -> &mut u32 {
        match call {
            Call::Read => &mut self.reads_failed,
            Call::Write => &mut self.writes_failed,
        }
    }
}

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
            problem: Mutex::default(),
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

    /// Fails with the reason if this process does not lead, and could not if a slot were free. A standby that
    /// reaches its storage is ready: otherwise a roll-out that waits for readiness would never finish.
    ///
    /// A storage that can be read may refuse every write (disk full, no write quorum). So a failed claim or
    /// renewal counts until the next one is answered.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let role = self.role();
        let problem = self.problem.lock();
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

    /// Returns why the storage does not work: its last failure since its last answer, or that of the last
    /// claim or renewal.
    pub(crate) fn storage_problem(&self) -> Option<Arc<str>> {
        let problem = self.problem.lock();
        problem.last.clone().or_else(|| problem.write.clone())
    }

    /// Returns what is wrong with the storage and for how long, for a line about a candidate that waits.
    pub fn storage_trouble(&self) -> Option<String> {
        let (reason, since) = (self.storage_problem()?, self.problem.lock().since);
        let age = Age(since.map_or(Duration::ZERO, |since| since.until(self.clock.now())));
        Some(format!("trouble with the storage{age}: {reason}"))
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
        self.reporter.get().into_iter().for_each(|reporter| reporter.leads(&self.candidate, &leading));
        self.change(|_| Some(Role::Starting(leading)));
    }

    /// Records that the work has stopped, and that the record is handed back or lost.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn leadership_ended(&self) {
        let Some(reporter) = self.reporter.get() else { return };
        reporter.ended(&self.role(), &self.how_work_ended());
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

    /// Records that the work is to stop, or has stopped by itself. The first reason stands. Nothing changes
    /// unless there is work.
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
        self.reporter.get().into_iter().for_each(|reporter| reporter.renewed(latency));
        let (name, latency_ms) = (self.candidate.name.as_str(), latency.as_secs_f64() * 1e3);
        log!(debug, event = "renewed", latency_ms, "{name}: renewed in {latency:?}");
    }

    /// Records an answer. Logs it if a failure was logged, and no kind of calls fails any more.
    ///
    /// A write that is answered shows that reads work, too: it compares. A read shows no more than reads, unless
    /// they had failed beside the writes: then the storage was away, and is back. A candidate writes only when a
    /// slot is free, which may be a TTL later or never.
    pub(crate) fn storage_answered(&self, call: Call) {
        self.answered_at.fetch_max(self.clock.now().as_nanos(), Ordering::Relaxed);
        let mut problem = self.problem.lock();
        problem.last = None;
        if call == Call::Write || problem.reads_failed > 0 {
            problem.writes_work();
        }
        problem.reads_failed = 0;
        let is_over = problem.is_over();
        drop(problem);
        self.log_if(is_over);
    }

    fn log_if(&self, is_over: bool) {
        if is_over {
            let name = self.candidate.name.as_str();
            log!(info, event = "storage_works_again", name, "{name}: the storage works again");
        }
    }

    /// Records a failure, and logs the first that is not a single one. A candidate that waits for ever would
    /// otherwise not report a full disk or a server that is down.
    pub(crate) fn storage_failed(&self, call: Call, failure: &str, error: &dyn fmt::Display) {
        self.telemetry.failed(call, failure);
        let reason = Arc::<str>::from(error.to_string());
        let mut problem = self.problem.lock();
        problem.last = Some(Arc::clone(&reason));
        if call == Call::Write {
            problem.write = Some(reason);
        }
        let now = self.clock.now();
        problem.since.get_or_insert(now);
        let in_a_row = problem.in_a_row(call);
        *in_a_row = in_a_row.saturating_add(1);
        let logs = (*in_a_row >= FAILURES_IN_A_ROW).then(|| problem.logs(now)).flatten();
        drop(problem);
        if let Some(since) = logs {
            let (name, call, lasting) = (self.candidate.name.as_str(), call.word(), since.until(now));
            let (age, lasting_ms) = (Age(lasting), millis(lasting));
            log!(
                warn, event = "storage_trouble", name, call, failure, lasting_ms, reason = %error,
                "{name}: trouble with the storage{age}: {error}; trying again"
            );
        }
    }

    /// Records that the storage could not be opened, and logs the first such failure.
    pub(crate) fn storage_not_opened(&self, error: &dyn fmt::Display) {
        let mut problem = self.problem.lock();
        problem.last = Some(error.to_string().into());
        let now = self.clock.now();
        let logs = problem.logs(now);
        drop(problem);
        if let Some(since) = logs {
            let (name, lasting) = (self.candidate.name.as_str(), since.until(now));
            let (age, lasting_ms) = (Age(lasting), millis(lasting));
            log!(
                warn, event = "storage_trouble", name, call = "open", lasting_ms, reason = %error,
                "{name}: {error}; trying again{age}"
            );
        }
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
            let mut problem = self.problem.lock();
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

/// Logs a new role, except the last one: the program logs its own outcome. Its message is for subscribers that print
/// messages.
fn log_role(candidate: &Candidate, role: &Role) {
    let (name, holder) = (candidate.name.as_str(), candidate.holder.as_str());
    let event = role.word();
    let slot = role.leadership().map(|leading| leading.slot);
    let epoch = role.leadership().map(|leading| leading.standing.epoch().get());
    let incarnation = role.leadership().map(|leading| leading.standing.incarnation().to_string());
    let says = format!("{name}{}: {event}", slot.map(|slot| format!(" slot {slot}")).unwrap_or_default());
    match role {
        Role::Ended { .. } => {}
        Role::Stopping { why: WhyStopping::Lost(loss), .. } => {
            let (loss, reason, why) = (loss_word(loss), loss.to_string(), "lost");
            let says = format!("{says}: {why}: {reason}");
            log!(warn, event, name, holder, slot, epoch, incarnation, why, loss, reason, "{says}");
        }
        Role::Stopping { why, .. } => {
            let why = why.word();
            let says = format!("{says}: {}", why.replace('_', " "));
            log!(info, event, name, holder, slot, epoch, incarnation, why, "{says}");
        }
        Role::Idling { idle, .. } => {
            let PendingRestart { number: restart, limit, pause, ref ended } = *idle;
            let (in_ms, reason) = (pause.as_millis() as u64, format!("the command {ended}"));
            let says = format!("{says}: {reason}");
            log!(
                info,
                event,
                name,
                holder,
                slot,
                epoch,
                incarnation,
                restart,
                limit,
                in_ms,
                reason,
                "{says}"
            );
        }
        _ => log!(info, event, name, holder, slot, epoch, incarnation, "{says}"),
    }
}

fn log_new_leader(candidate: &Candidate, leader: &SeenLeader) {
    let (name, holder) = (candidate.name.as_str(), candidate.holder.as_str());
    let (slot, epoch, new) = (leader.slot, leader.epoch.get(), leader.holder.as_str());
    log!(info, event = "new_leader", name, holder, slot, epoch, leader = new, "{name}: {leader}");
}

/// ` for 65 s`; nothing below a second.
struct Age(Duration);

impl fmt::Display for Age {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds == 0 { Ok(()) } else { write!(out, " for {seconds} s") }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl HostStatus {
    /// Returns the status at this moment. Counts of failures and losses have no zeros.
    pub(crate) fn snapshot(&self) -> Value {
        let role = self.role();
        let (candidate, telemetry) = (&self.candidate, &self.telemetry);
        let (renewals, not_ready) = (telemetry.renewals.read(), self.readiness().err());
        let mean_ms = renewals.sum.as_secs_f64() * 1e3 / renewals.count as f64;
        let bounds = renewals.cumulative.iter().map(|(bound, count)| (millis(*bound), *count));
        let others = self.others().into_iter().map(|seen| {
            let (slot, holder, epoch) = (seen.slot, seen.holder.as_str(), seen.epoch.get());
            json!({"slot": slot, "holder": holder, "epoch": epoch, "seen_ms_ago": millis(seen.ago)})
        });
        let failures = telemetry.failures().filter(|(.., count)| *count > 0);
        let failures = failures
            .map(|(call, failure, count)| (format!("{}_{}", call.word(), failure), Value::from(count)));
        let now = self.clock.now();
        let change = |(at, says): &(Instant, String)| json!({"ms_ago": millis(at.until(now)), "says": says});
        let changes = self.changes.lock().iter().map(change).collect::<Vec<_>>();
        let uptime = self.began.until(self.clock.now());
        let losses = telemetry.losses().filter(|(_, count)| *count > 0);
        let mut shown = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "name": candidate.name, "holder": candidate.holder.as_str(),
            "slots": candidate.slots, "ttl_ms": millis(candidate.ttl.get()), "uptime_ms": millis(uptime),
            "role": role.word(), "says": self.activity(), "ready": not_ready.is_none(),
            "leadership": self.leadership_shown(&role),
            "others": others.collect::<Vec<_>>(),
            "storage": {
                "location": *self.location.lock(),
                "answered_ms_ago": millis(self.unanswered_for()),
                "trouble": self.storage_problem().as_deref(),
            },
            "renewals": {
                "count": renewals.count,
                "mean_ms": (renewals.count > 0).then_some(mean_ms),
                // For each bound, how many renewals did not take longer.
                "up_to_ms": bounds.collect::<Vec<_>>(),
            },
            "leaderships": telemetry.leaderships.get(), "take_overs": telemetry.take_overs.get(),
            "restarts": telemetry.restarts.get(), "check_failures": telemetry.check_failures.get(),
            "failures": failures.collect::<Map<_, _>>(),
            // The newest first.
            "changes": changes,
            "losses": losses.map(|(reason, count)| (reason.into(), count.into())).collect::<Map<_, _>>(),
        });
        if let Some(link) = self.successor.get() {
            let ms_ago = |at: Instant| millis(at.until(now));
            // `null` while none is named.
            shown["successor"] = link.successor().map_or(Value::Null, |named| {
                json!({
                    "address": named.address.to_string(),
                    "support_ms": millis(link.period.get()),
                    "named_ms_ago": ms_ago(named.since),
                    "acknowledged_ms_ago": named.acknowledged_at.map(ms_ago),
                })
            });
        }
        if let Some(reason) = not_ready {
            shown["not_ready"] = reason.into();
        }
        if let Some(status) = *telemetry.last_exit_status.lock() {
            shown["last_exit_status"] = status.into();
        }
        shown
    }

    fn leadership_shown(&self, role: &Role) -> Option<Value> {
        let leading = role.leadership()?;
        let mut shown = json!({
            "slot": leading.slot, "epoch": leading.standing.epoch().get(),
            "incarnation": leading.standing.incarnation().to_string(),
            // The time until the kill deadline; zero once lost.
            "margin_ms": millis(leading.standing.remaining()),
            "since_ms": millis(leading.since.until(self.clock.now())),
        });
        if let Role::Stopping { why, .. } = role {
            shown["stopping"] = why.word().into();
        }
        if let Role::Stopping { why: WhyStopping::Lost(loss), .. } = role
            && let Some(loss) = loss_word(loss)
        {
            shown["loss"] = loss.into();
        }
        Some(shown)
    }
}

#[cfg(test)]
pub(crate) mod tests;
