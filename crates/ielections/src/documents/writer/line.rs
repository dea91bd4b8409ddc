//! Who waits to write, what is under way, and what each answer means for them: a value without I/O. The rules
//! that keep I2 and I7 on the writer's side stand here.
//!
//! 1. One batch at a time, always after the count last known; the next one only when that count has moved or
//!    the batch can never land any more.
//! 2. Nothing but the count tells whether an unanswered batch has landed: under our epoch and incarnation
//!    nobody else proposes. Has it not, the very same batch is sent again; the two can't both land.
//! 3. A refused batch whose fence stands has failed by a condition. What is sent in its place may follow the
//!    same count: the refused one can't land before it (its condition fails), nor after it (the count has
//!    moved).
//! 4. Being deposed is final.

use super::super::{
    BatchOutcome, Fence, FenceState,
    error::{DocumentWriteError, Over},
};
use crate::{
    DocumentId, DocumentLimits, DocumentVersion, DocumentWrite, Epoch, Incarnation, Loss, OnlyIf, ReadError,
    WriteError,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::Instant;

/// What a caller of a write gets.
pub(super) type Answer = Result<DocumentVersion, DocumentWriteError>;

/// The state of one leadership's writes.
pub(super) struct Line {
    epoch: Epoch,
    incarnation: Incarnation,
    limits: DocumentLimits,
    /// How long one batch is tried without getting anywhere.
    patience: Duration,
    /// The last batch of the partition; `None` until it was read once.
    count: Option<DocumentVersion>,
    waiting: VecDeque<Job>,
    sent: Option<Sent>,
    /// Since when nothing got anywhere.
    failing_since: Option<Instant>,
    over: Option<Over>,
}

struct Job {
    writes: Vec<DocumentWrite>,
    caller: oneshot::Sender<Answer>,
}

/// The batch whose turn it is.
struct Sent {
    writes: Arc<[DocumentWrite]>,
    /// Whose writes they are, and how many of each, in order.
    callers: Vec<(usize, oneshot::Sender<Answer>)>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// To be sent. `before`: it was sent already, and that may still land.
    Ready { before: bool },
    /// Sent, and not answered yet. Whoever finds it so has come after a caller who was dropped.
    UnderWay { before: bool },
    /// Landed or not, or not yet.
    Unsure,
    /// By the fence or by a condition.
    Refused,
    /// By a condition.
    Conflicting,
}

/// What to do next.
pub(super) enum Step {
    /// Read what the fence is compared with.
    ReadFence,
    /// Send this.
    Write(Fence, Arc<[DocumentWrite]>),
    /// Read these documents.
    ReadConditioned(Vec<DocumentId>),
    /// Nobody waits for anything.
    Nothing,
}

/// When to do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    AtOnce,
    AfterPause,
}

impl Line {
    pub(super) fn new(
        epoch: Epoch,
        incarnation: Incarnation,
        limits: DocumentLimits,
        patience: Duration,
    ) -> Self {
        Self {
            epoch,
            incarnation,
            limits,
            patience,
            count: None,
            waiting: VecDeque::new(),
            sent: None,
            failing_since: None,
            over: None,
        }
    }

    pub(super) fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// Whether the count was read under this leadership.
    pub(super) fn knows_count(&self) -> bool {
        self.count.is_some()
    }

    /// Puts a batch that keeps the limits at the end of the line.
    pub(super) fn join(&mut self, writes: Vec<DocumentWrite>) -> Result<oneshot::Receiver<Answer>, Over> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        let (caller, answer) = oneshot::channel();
        self.waiting.push_back(Job { writes, caller });
        Ok(answer)
    }

    /// The next step. To be taken: a write counts as sent from here.
    pub(super) fn next(&mut self) -> Step {
        let Some(after) = self.count else { return Step::ReadFence };
        let fence = Fence { epoch: self.epoch, incarnation: self.incarnation, after };
        if self.sent.is_none() {
            self.sent = self.take();
        }
        let Some(sent) = &mut self.sent else { return Step::Nothing };
        match sent.stage {
            Stage::Ready { before } => {
                sent.stage = Stage::UnderWay { before };
                Step::Write(fence, Arc::clone(&sent.writes))
            }
            Stage::UnderWay { .. } => {
                sent.stage = Stage::Unsure;
                Step::ReadFence
            }
            Stage::Unsure | Stage::Refused => Step::ReadFence,
            Stage::Conflicting => {
                let conditioned = sent.writes.iter().filter(|write| write.only_if() != OnlyIf::Always);
                Step::ReadConditioned(conditioned.map(|write| write.id().clone()).collect())
            }
        }
    }

    /// As many of those who wait as one batch can carry, in their order. Who has gone is left out.
    fn take(&mut self) -> Option<Sent> {
        let mut writes: Vec<DocumentWrite> = Vec::new();
        let mut callers = Vec::new();
        let mut ids = HashSet::new();
        let mut bytes = 0;
        while let Some(job) = self.waiting.front() {
            let more: usize = job.writes.iter().map(DocumentWrite::bytes).sum();
            let fits = writes.len() + job.writes.len() <= self.limits.max_batch
                && bytes + more <= self.limits.max_batch_bytes
                && job.writes.iter().all(|write| !ids.contains(write.id()));
            // The first one always fits: that was checked when it came.
            if !job.caller.is_closed() && !fits && !callers.is_empty() {
                break;
            }
            let Some(job) = self.waiting.pop_front() else { break };
            if job.caller.is_closed() {
                continue;
            }
            bytes += more;
            ids.extend(job.writes.iter().map(|write| write.id().clone()));
            callers.push((job.writes.len(), job.caller));
            writes.extend(job.writes);
        }
        let stage = Stage::Ready { before: false };
        (!callers.is_empty()).then(|| Sent { writes: writes.into(), callers, stage })
    }

    pub(super) fn fence_read(&mut self, now: Instant, outcome: Result<FenceState, ReadError>) -> Pace {
        let state = match outcome {
            Ok(state) => state,
            Err(ReadError::Unavailable(cause)) => return self.failed(now, cause.to_string()),
            Err(ReadError::Fatal(cause)) => return self.refused_for_good(cause.to_string().into()),
            Err(ReadError::Replaced(cause)) => return self.replaced(cause.to_string()),
        };
        let entry = state.slot.entry();
        if !entry.is_some_and(|entry| entry.is_of(self.incarnation, self.epoch)) {
            return self.end(Over::Deposed { current: entry.map(|entry| entry.epoch) });
        }
        let Some(after) = self.count else {
            self.count = Some(state.last);
            self.failing_since = None;
            return Pace::AtOnce;
        };
        if self.sent.is_some() && state.last == after.next() {
            return self.landed(after);
        }
        if state.last != after {
            let (last, expected) = (state.last, after);
            return self.replaced(format!("its partition is at batch {last} and was at batch {expected}"));
        }
        let Some(sent) = &mut self.sent else { return Pace::AtOnce };
        match sent.stage {
            Stage::Refused => {
                sent.stage = Stage::Conflicting;
                Pace::AtOnce
            }
            Stage::Unsure => {
                sent.stage = Stage::Ready { before: true };
                Pace::AfterPause
            }
            Stage::Ready { .. } | Stage::UnderWay { .. } | Stage::Conflicting => Pace::AtOnce,
        }
    }

    pub(super) fn written(&mut self, now: Instant, outcome: Result<BatchOutcome, WriteError>) -> Pace {
        let (Some(after), Some(sent)) = (self.count, &mut self.sent) else { return Pace::AtOnce };
        let before = matches!(sent.stage, Stage::UnderWay { before: true });
        match outcome {
            Ok(BatchOutcome::Written) => self.landed(after),
            Ok(BatchOutcome::Refused) => {
                sent.stage = Stage::Refused;
                Pace::AtOnce
            }
            Err(WriteError::NotApplied(cause)) => {
                sent.stage = Stage::Ready { before };
                self.failed(now, cause.to_string())
            }
            Err(WriteError::Unknown(cause)) => {
                sent.stage = Stage::Unsure;
                self.failed(now, cause.to_string());
                Pace::AtOnce
            }
            // Of this attempt alone it says that it never lands.
            Err(WriteError::Fatal(cause)) if before => {
                sent.stage = Stage::Unsure;
                self.failed(now, cause.to_string())
            }
            Err(WriteError::Fatal(cause)) => {
                sent.stage = Stage::Ready { before };
                self.refused_for_good(cause.to_string().into())
            }
            Err(WriteError::Replaced(cause)) => self.replaced(cause.to_string()),
        }
    }

    /// What stands of the documents on which the refused batch depends: whose condition failed hears of it,
    /// and the others' writes are sent again.
    pub(super) fn conditioned_read(
        &mut self,
        now: Instant,
        outcome: Result<HashMap<DocumentId, DocumentVersion>, ReadError>,
    ) -> Pace {
        let found = match outcome {
            Ok(found) => found,
            Err(ReadError::Unavailable(cause)) => return self.failed(now, cause.to_string()),
            Err(ReadError::Fatal(cause)) => return self.refused_for_good(cause.to_string().into()),
            Err(ReadError::Replaced(cause)) => return self.replaced(cause.to_string()),
        };
        let Some(sent) = self.sent.take() else { return Pace::AtOnce };
        let fails = |write: &&DocumentWrite| !write.only_if().holds(found.get(write.id()).copied());
        if !sent.writes.iter().any(|write| fails(&write)) {
            // Nobody but us can have mended it, and we have not: ask again, and not for ever.
            self.sent = Some(Sent { stage: Stage::Ready { before: true }, ..sent });
            return self.failed(now, "refused, although the fence and every condition stand".to_owned());
        }
        let mut rest = sent.writes.as_ref();
        let (mut writes, mut callers) = (Vec::new(), Vec::new());
        for (own, caller) in sent.callers {
            let (own, others) = rest.split_at(own.min(rest.len()));
            rest = others;
            if let Some(failing) = own.iter().find(fails) {
                let id = failing.id().clone();
                let found = found.get(&id).copied();
                answer(caller, Err(DocumentWriteError::Conflict { id, found }));
            } else if !caller.is_closed() {
                writes.extend_from_slice(own);
                callers.push((own.len(), caller));
            }
        }
        if !callers.is_empty() {
            let stage = Stage::Ready { before: false };
            self.sent = Some(Sent { writes: writes.into(), callers, stage });
        }
        self.failing_since = None;
        Pace::AtOnce
    }

    fn landed(&mut self, after: DocumentVersion) -> Pace {
        let version = after.next();
        self.count = Some(version);
        self.failing_since = None;
        for (_, caller) in self.sent.take().into_iter().flat_map(|sent| sent.callers) {
            answer(caller, Ok(version));
        }
        Pace::AtOnce
    }

    /// One more try failed. After enough of them everybody hears so, and the next caller begins anew (I10).
    fn failed(&mut self, now: Instant, cause: String) -> Pace {
        let since = *self.failing_since.get_or_insert(now);
        if now.since(since) >= self.patience {
            let cause: Arc<str> = cause.into();
            self.give_up(&cause, DocumentWriteError::NotWritten { cause: Arc::clone(&cause) });
        }
        Pace::AfterPause
    }

    fn refused_for_good(&mut self, cause: Arc<str>) -> Pace {
        self.give_up(&cause, DocumentWriteError::Refused { cause: Arc::clone(&cause) });
        Pace::AtOnce
    }

    fn replaced(&mut self, cause: String) -> Pace {
        self.end(Over::Lost(Loss::StorageReplaced { cause: cause.into() }))
    }

    /// Answers everybody: with `unsent` those whose writes certainly never land. What may still land stays,
    /// to be settled before anything else is sent.
    fn give_up(&mut self, cause: &Arc<str>, unsent: DocumentWriteError) {
        self.failing_since = None;
        if let Some(sent) = &mut self.sent {
            let never_lands = matches!(sent.stage, Stage::Ready { before: false });
            let unknown = || DocumentWriteError::Unknown { cause: Arc::clone(cause) };
            for (_, caller) in mem::take(&mut sent.callers) {
                answer(caller, Err(if never_lands { unsent.clone() } else { unknown() }));
            }
            if never_lands {
                self.sent = None;
            }
        }
        for job in self.waiting.drain(..) {
            answer(job.caller, Err(unsent.clone()));
        }
    }

    /// Nothing goes through here any more.
    pub(super) fn end(&mut self, over: Over) -> Pace {
        let sent = self.sent.take().into_iter().flat_map(|sent| sent.callers);
        for caller in sent.map(|(_, caller)| caller).chain(self.waiting.drain(..).map(|job| job.caller)) {
            answer(caller, Err(over.clone().into()));
        }
        self.over.get_or_insert(over);
        Pace::AtOnce
    }
}

fn answer(caller: oneshot::Sender<Answer>, answer: Answer) {
    // A caller that has gone needs none.
    drop(caller.send(answer));
}
