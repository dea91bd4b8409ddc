//! Guardians as the world sees them: the notes that they have, what their hosts left at work, and the checks
//! of their releases (I2, I6) and of what they write to the history.

use super::{Work, World};
use crate::{executor::Process, ledger, records::Records, write::Write};
use ielections::{Epoch, Incarnation};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Notify;
use vvm_host::operate::{LeftBehind, PastLeadership};

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

/// Returns the history of a slot as it stands.
pub(super) fn history(records: &Records, key: u32) -> Vec<PastLeadership> {
    let document = records.documents(key).find(|document| !ledger::is_of_service(&document.id));
    document.and_then(|document| serde_json::from_slice(&document.body).ok()).unwrap_or_default()
}
