//! Work under a leadership and its deadline, with the checks of I1, I3, I4 and rising epochs.

use super::World;
use crate::{clock::Process, records::Token};
use ielections::{DocumentVersion, DocumentWriteError, Epoch, Incarnation};
use vvm_clock::Instant;

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

    pub(crate) fn working(&self) -> usize {
        let state = self.state();
        let work = state.processes.values().flat_map(|alive| alive.work.values());
        work.map(|work| work.key).collect::<std::collections::BTreeSet<_>>().len()
    }

    pub(crate) fn work_begins(&self, process: Process, key: u32, epoch: Epoch, incarnation: Incarnation) {
        self.note(format_args!("{process} works on slot {key}, epoch {epoch}"));
        self.count(|counts| counts.starts += 1);
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

    /// `winner` is `None` if the record is that of the leadership itself.
    pub(crate) fn lost_to(&self, process: Process, winner: Option<Incarnation>) {
        let claimant = |winner| self.state().claimants.get(&winner) == Some(&process);
        let is_own = winner.is_none_or(claimant);
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

    pub(crate) fn resumes(&self) {
        self.state().paused = false;
        self.note(format_args!("the operator resumes"));
    }
}
