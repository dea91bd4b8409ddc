//! Work under a leadership and its deadline, with the checks of I1, I3, I4 and rising epochs.

use super::World;
use crate::{
    clock::Process,
    records::{Records, Token, Write},
};
use ielections::{DocumentVersion, DocumentWriteError, Epoch, Incarnation};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Notify;
use vvm_clock::Instant;
use vvm_host::operate::{LeftBehind, PastLeadership};

/// Work under one leadership.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) key: u32,
    /// The latest deadline that a loss of this leadership has left, on the clock of the process (I4).
    pub(crate) final_deadline: Option<Instant>,
}

impl World {
    pub(crate) fn is_working(&self, process: Process) -> bool {
        self.state().processes.get(&process).is_some_and(|alive| !alive.work.is_empty())
    }

    /// How many slots are worked on.
    pub(crate) fn working(&self) -> usize {
        let state = self.state();
        let work = state.processes.values().flat_map(|alive| alive.work.values());
        work.map(|work| work.key).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Services of `process` begin to work as leader.
    pub(crate) fn work_begins(&self, process: Process, key: u32, epoch: Epoch, incarnation: Incarnation) {
        self.note(format_args!("{process} works on slot {key}, epoch {epoch}"));
        self.count(|counts| counts.starts += 1);
        self.check_ticket(process, incarnation);
        let other = {
            let state = self.state();
            state.at_work().find(|(_, _, work)| work.key == key).map(|(other, ..)| other)
        };
        if let Some(other) = other.filter(|_| self.promises.one_leader()) {
            self.violated("I1", format_args!("{process} begins work on slot {key} while {other} is at work"));
        }
        let mut state = self.state();
        let paused = state.paused;
        let rising = state.records.work_begins(key, epoch);
        let mut together = false;
        if let Some(alive) = state.processes.get_mut(&process) {
            together = !alive.work.is_empty();
            alive.work.insert(incarnation, Work { key, final_deadline: None });
        }
        state.counts.together += u64::from(together);
        drop(state);
        // A leader whose clock stops may begin after its successor; its epoch fences it then.
        if !rising && self.promises.one_leader() {
            self.violated(
                "rising epochs",
                format_args!("work on slot {key} begins at {epoch}, not a larger one"),
            );
        }
        if paused && self.promises.one_leader() {
            self.violated("pause", format_args!("{process} begins work on slot {key} in a pause"));
        }
    }

    /// Services of `process` have stopped.
    pub(crate) fn work_ends(&self, process: Process, incarnation: Incarnation) {
        if let Some(alive) = self.state().processes.get_mut(&process) {
            alive.work.remove(&incarnation);
        }
        self.note(format_args!("{process} stops working under {incarnation:?}"));
    }

    /// The work under `incarnation` sees a loss that leaves the process until `latest`, on its own clock.
    pub(crate) fn tightened(&self, process: Process, incarnation: Incarnation, latest: Instant) {
        let mut state = self.state();
        state.counts.tightened += 1;
        let Some(alive) = state.processes.get_mut(&process) else { return };
        if let Some(work) = alive.work.get_mut(&incarnation) {
            work.final_deadline = Some(latest);
        }
        let deadline = alive.deadline;
        drop(state);
        self.deadline_set(process, deadline);
    }

    /// Notes the deadline of the deadman of `process`, and checks its bounds (I3, I4): for each leadership
    /// that it works under, the latest applied write, or what a loss has left.
    pub(crate) fn deadline_set(&self, process: Process, deadline: Option<Instant>) {
        let mut state = self.state();
        let Some(alive) = state.processes.get_mut(&process) else { return };
        alive.deadline = deadline;
        let bound = |(sent_at, ttl): (Instant, ielections::Ttl)| sent_at.after(ttl.get() * 4 / 5);
        let proven = alive.proven.values().copied().map(bound).max();
        let of_work = alive.work.keys().filter_map(|of| alive.proven.get(of).copied().map(bound)).min();
        let last = alive.work.values().filter_map(|work| work.final_deadline).min();
        drop(state);
        let Some(deadline) = deadline else { return };
        if proven.is_none_or(|proven| deadline > proven) || of_work.is_some_and(|bound| deadline > bound) {
            self.violated(
                "I3",
                format_args!(
                    "the deadline of {process} is {deadline:?}; writes that applied allow {:?}",
                    of_work.or(proven)
                ),
            );
        }
        if let Some(last) = last.filter(|last| deadline > *last) {
            self.violated(
                "I4",
                format_args!("the deadline of {process} is {deadline:?}, after a loss that left {last:?}"),
            );
        }
    }

    pub(crate) fn deadline(&self, process: Process) -> Option<Instant> {
        self.state().processes.get(&process)?.deadline
    }

    /// A leadership of `process` was lost to the record of `winner`.
    pub(crate) fn lost_to(&self, process: Process, winner: Incarnation) {
        let is_own = self.state().claimants.get(&winner) == Some(&process);
        if is_own && self.promises.storage {
            self.violated("I7", format_args!("{process} has lost its leadership to its own write"));
        }
    }

    /// A writer of documents got the answer to a batch. Checks that it tells what happened (I7).
    pub(crate) fn batch_answered(
        &self,
        key: u32,
        token: Token,
        answer: &Result<DocumentVersion, DocumentWriteError>,
    ) {
        let mut state = self.state();
        let counts = &mut state.counts;
        let is_never = match answer {
            Ok(version) => {
                let has_landed = state.ledger.has_landed(key, *version, &token);
                drop(state);
                if !has_landed && self.promises.storage {
                    self.violated("I7", format_args!("{token:?} is confirmed as {version:?} and is not"));
                }
                return;
            }
            Err(DocumentWriteError::Conflict { .. }) => {
                counts.batches_conflicting += 1;
                true
            }
            Err(DocumentWriteError::NotWritten { .. } | DocumentWriteError::Refused { .. }) => true,
            Err(DocumentWriteError::Unknown { .. }) => {
                counts.batches_unknown += 1;
                false
            }
            Err(DocumentWriteError::Deposed { .. }) => {
                counts.batches_deposed += 1;
                false
            }
            Err(DocumentWriteError::TooLarge(_) | DocumentWriteError::Lost(_)) => false,
        };
        let landed = is_never && state.ledger.never_lands(token);
        drop(state);
        if landed && self.promises.storage {
            self.violated("I7", format_args!("{token:?} has landed, and its writer is told {answer:?}"));
        }
    }

    /// A call of `process` arrives at an external system, which refuses epochs smaller than one it has seen.
    pub(crate) fn external_call(&self, key: u32, epoch: Epoch, incarnation: Incarnation) {
        let mut state = self.state();
        let largest = state.fences.get(&key).copied();
        let is_refused = largest > Some(epoch);
        let leads = state.records.is_held_by(key, incarnation);
        state.counts.fenced += u64::from(is_refused);
        state.fences.insert(key, largest.map_or(epoch, |largest| largest.max(epoch)));
        drop(state);
        if is_refused && leads && self.promises.storage {
            self.violated(
                "rising epochs",
                format_args!("an external fence of {largest:?} refuses the leader of slot {key}, {epoch}"),
            );
        }
    }

    /// `vvm pause` reports success: nothing works from here to [`resumes`](Self::resumes).
    pub(crate) fn pause_succeeds(&self) {
        self.note(format_args!("the pause succeeds"));
        let working = {
            let mut state = self.state();
            state.paused = true;
            state.counts.operator_pauses += 1;
            state.at_work().next().map(|(process, ..)| process)
        };
        if let Some(process) = working.filter(|_| self.promises.one_leader()) {
            self.violated("pause", format_args!("{process} is at work when the pause succeeds"));
        }
    }

    /// `vvm resume` is about to be sent.
    pub(crate) fn resumes(&self) {
        self.state().paused = false;
        self.note(format_args!("the operator resumes"));
    }
}

/// The guardian of one process.
#[derive(Default)]
pub(super) struct Guarding {
    has_every_note: bool,
    told: Told,
    pub(super) host_died: Arc<Notify>,
    /// What the host left at work, until its guardian has reaped it.
    pub(super) left: BTreeMap<Incarnation, Work>,
}

/// What a guardian knows of its host.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// The record that the host may leave behind, by the last note.
    pub(crate) claim: Option<LeftBehind>,
    /// All that were noted so far.
    pub(crate) tickets: Vec<LeftBehind>,
    /// The host has said how it ends.
    pub(crate) is_orderly: bool,
}

/// The process that releases for a guardian.
#[derive(Default)]
pub(super) struct ReleaseRun {
    asks_documents: bool,
    /// The leadership whose end it has written.
    has_written: Option<(u32, Epoch)>,
    has_released: bool,
}

/// The first words of the end that a guardian writes; the epoch follows.
const BY_GUARDIAN: &str = "released by the guardian of epoch ";

/// Returns the end that the guardian of a leadership writes to the history.
pub(crate) fn end_of(epoch: Epoch) -> String {
    format!("{BY_GUARDIAN}{epoch}")
}

impl World {
    /// A guardian starts `host`. Returns what is notified when the host dies.
    pub(crate) fn guards(&self, host: Process, has_every_note: bool) -> Arc<Notify> {
        let guarding = Guarding { has_every_note, ..Guarding::default() };
        let host_died = Arc::clone(&guarding.host_died);
        self.state().guardians.insert(host, guarding);
        host_died
    }

    /// Whether no note to the guardian of `host` is late or lost. `None` without a guardian.
    pub(crate) fn has_every_note(&self, host: Process) -> Option<bool> {
        self.state().guardians.get(&host).map(|guarding| guarding.has_every_note)
    }

    /// A note about the record that `host` may leave behind arrives at its guardian.
    pub(crate) fn ticket_arrives(&self, host: Process, claim: Option<LeftBehind>) {
        if let Some(Guarding { told, .. }) = self.state().guardians.get_mut(&host) {
            told.claim = claim;
            told.tickets.extend(claim);
        }
    }

    /// `host` says that it ends in an orderly way.
    pub(crate) fn farewell(&self, host: Process) {
        if let Some(Guarding { told, .. }) = self.state().guardians.get_mut(&host) {
            told.is_orderly = true;
        }
    }

    pub(crate) fn told(&self, host: Process) -> Told {
        self.state().guardians.get(&host).map(|guarding| guarding.told.clone()).unwrap_or_default()
    }

    /// Whether `host` has left processes at work.
    pub(crate) fn left_work(&self, host: Process) -> bool {
        self.state().guardians.get(&host).is_some_and(|guarding| !guarding.left.is_empty())
    }

    /// Checks that a guardian that gets every note knows under which leadership its host begins to work:
    /// otherwise a fail-over takes a TTL.
    pub(super) fn check_ticket(&self, host: Process, incarnation: Incarnation) {
        let told = self.told(host);
        let knows = told.claim.is_some_and(|claim| claim.incarnation == incarnation);
        if self.has_every_note(host) == Some(true) && !knows {
            let what =
                format_args!("{host} works under {incarnation:?}; its guardian knows {:?}", told.claim);
            self.violated("ticket", what);
        }
    }

    /// The last process of `host` has ended.
    pub(crate) fn ends_rest(&self, host: Process) {
        if let Some(guarding) = self.state().guardians.get_mut(&host) {
            guarding.left.clear();
        }
        self.note(format_args!("no process of {host} is left"));
    }

    /// A process reads documents.
    pub(crate) fn asks_documents(&self, process: Process) {
        if process.host().is_some() {
            self.state().releases.entry(process).or_default().asks_documents = true;
        }
    }

    /// A guardian was told that it has released the record of `ticket`.
    pub(crate) fn has_released(&self, releases: Process, ticket: &LeftBehind) {
        let is_held = self.state().records.is_held_by(ticket.slot.get().get(), ticket.incarnation);
        if is_held && self.promises.storage {
            self.violated("I7", format_args!("{releases} is told that it has released {ticket:?}"));
        }
    }

    /// Checks the order of a guardian's writes where it sends one.
    pub(super) fn check_guardian_sends(&self, process: Process, write: &Write) {
        if process.host().is_none() {
            return;
        }
        let mut state = self.state();
        let run = state.releases.entry(process).or_default();
        let what = match write {
            Write::Delete(..) => {
                run.has_released = true;
                (!run.asks_documents).then_some("releases before it writes the history")
            }
            Write::Batch(..) => run.has_released.then_some("writes the history after its release"),
            _ => Some("sends what only a host may send"),
        };
        drop(state);
        if let Some(what) = what {
            self.violated("history", format_args!("the {process} {what}"));
        }
    }

    /// Checks an applied write of a guardian. `history_before` stood before a batch.
    pub(super) fn check_guardian(&self, process: Process, write: &Write, history_before: &[PastLeadership]) {
        let Some(host) = process.host() else { return };
        match write {
            Write::Delete(key, incarnation, _) => {
                self.check_guardian_releases((process, host), *key, *incarnation);
            }
            Write::Batch(key, fence, _) => self.check_end(process, *key, fence.epoch, history_before),
            _ => {}
        }
    }

    /// Checks that a guardian has released a record of its own host, of which nothing is left, and not before
    /// the end is in the history.
    fn check_guardian_releases(&self, (process, host): (Process, Process), key: u32, of: Incarnation) {
        let mut state = self.state();
        let is_of_host = state.claimants.get(&of) == Some(&host);
        let is_at_work = state.at_work().any(|(at_work, ..)| at_work == host);
        let is_alive = is_at_work || state.processes.contains_key(&host);
        let written = state.releases.get(&process).and_then(|run| run.has_written);
        let written = written.filter(|(slot, _)| *slot == key);
        let has_end = |epoch: Epoch| {
            let has_end = |past: &PastLeadership| past.epoch == epoch.get() && past.end.is_some();
            history(&state.records, key).iter().any(has_end)
        };
        let is_lost = written.is_some_and(|(_, epoch)| !has_end(epoch));
        state.counts.guardian_releases += 1;
        state.counts.guardian_releases_told += u64::from(written.is_some());
        drop(state);
        if !is_of_host {
            self.violated(
                "I2",
                format_args!("the {process} releases {of:?} on slot {key}, another's record"),
            );
        }
        if is_alive {
            self.violated("I6", format_args!("the {process} releases slot {key}, and some of it is left"));
        }
        if is_lost && self.promises.storage {
            self.violated("history", format_args!("the {process} releases {written:?}, whose end is gone"));
        }
    }

    /// Checks that a guardian has written the end of its host's leadership, and changed nothing else.
    fn check_end(&self, process: Process, key: u32, epoch: Epoch, before: &[PastLeadership]) {
        let mut state = self.state();
        let after = history(&state.records, key);
        state.releases.entry(process).or_default().has_written = Some((key, epoch));
        state.counts.guardian_ends += 1;
        drop(state);
        let mut expected = before.to_vec();
        let entry = expected.iter_mut().find(|past| past.epoch == epoch.get());
        let written = after.iter().find(|past| past.epoch == epoch.get());
        if let (Some(entry), Some(written)) = (entry, written) {
            (entry.ended_ms, entry.end) = (written.ended_ms, Some(end_of(epoch)));
        }
        if (expected != after || written.is_none()) && self.promises.storage {
            let what = format_args!("the {process} makes {after:?} of {before:?} for epoch {epoch}");
            self.violated("history", what);
        }
    }
}

/// The id of the document with the history.
const HISTORY: &[u8] = b"vvm-history";

/// Returns the history of a slot as it stands.
pub(super) fn history(records: &Records, key: u32) -> Vec<PastLeadership> {
    let document = records.documents(key).find(|document| document.id.as_bytes() == HISTORY);
    document.and_then(|document| serde_json::from_slice(&document.body).ok()).unwrap_or_default()
}
