use crate::documents::{DocumentWriteError, Over};
use crate::{
    BatchOutcome, DocumentId, DocumentLimits, DocumentVersion, DocumentWrite, Epoch, Fence, FenceState,
    Incarnation, OnlyIf, ReadError, WriteError, state::Loss,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::Instant;

pub(super) type WriteResult = Result<DocumentVersion, DocumentWriteError>;

/// The writes of one leadership. Four rules keep I2 and I7 on the writer's side:
///
/// 1. One batch at a time is sent, and it follows the last known count. The next batch is sent only when the
///    count has moved, or when the one before can never be applied any more.
/// 2. The count alone tells whether an unanswered batch was applied, since no other writer uses our epoch and
///    incarnation. If it was not, the same batch is sent again. Only one of the two can be applied.
/// 3. A refused batch whose fence stands has failed by a condition. Its replacement may follow the same count: the
///    refused batch can't be applied before it (the condition fails) nor after it (the count has moved).
/// 4. Being deposed is final.
pub(super) struct WriteQueue {
    epoch: Epoch,
    incarnation: Incarnation,
    limits: DocumentLimits,
    /// How long attempts may fail before the callers get an error.
    timeout: Duration,
    count: Option<DocumentVersion>,
    waiting: VecDeque<QueuedWrites>,
    sent: Option<BatchInFlight>,
    failing_since: Option<Instant>,
    over: Option<Over>,
}

struct QueuedWrites {
    writes: Vec<DocumentWrite>,
    caller: oneshot::Sender<WriteResult>,
}

struct BatchInFlight {
    writes: Arc<[DocumentWrite]>,
    /// The callers in the order of their writes, each with the number of its writes.
    callers: Vec<(usize, oneshot::Sender<WriteResult>)>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// `before`: an earlier attempt may still be applied.
    Ready {
        before: bool,
    },
    /// Sent, and not answered yet. A caller finds this stage if the caller before it was dropped.
    InFlight {
        before: bool,
    },
    Unknown,
    /// Refused by the fence or by a condition.
    Refused,
    /// Refused by a condition.
    Conflicting,
}

pub(super) enum QueueStep {
    ReadFence,
    Write(Fence, Arc<[DocumentWrite]>),
    ReadConditioned(Vec<DocumentId>),
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    AtOnce,
    AfterPause,
}

impl WriteQueue {
    pub(super) fn new(
        epoch: Epoch,
        incarnation: Incarnation,
        limits: DocumentLimits,
        timeout: Duration,
    ) -> Self {
        Self {
            epoch,
            incarnation,
            limits,
            timeout,
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

    pub(super) fn knows_count(&self) -> bool {
        self.count.is_some()
    }

    pub(super) fn push(
        &mut self,
        writes: Vec<DocumentWrite>,
    ) -> Result<oneshot::Receiver<WriteResult>, Over> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        // Before it grows: one caller after another may be dropped while it drives (I11).
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|job| !job.caller.is_closed());
        }
        // Those that have failed are gone. The new caller has its own timeout.
        if self.failing_since.is_some() && !self.is_awaited() {
            self.failing_since = None;
        }
        let (caller, answer) = oneshot::channel();
        self.waiting.push_back(QueuedWrites { writes, caller });
        Ok(answer)
    }

    fn is_awaited(&self) -> bool {
        let sent = self.sent.iter().flat_map(|sent| sent.callers.iter().map(|(_, caller)| caller));
        sent.chain(self.waiting.iter().map(|job| &job.caller)).any(|caller| !caller.is_closed())
    }

    /// Returns the next step, which the caller must take: a write counts as sent from here.
    pub(super) fn next(&mut self) -> QueueStep {
        let Some(after) = self.count else { return QueueStep::ReadFence };
        let fence = Fence { epoch: self.epoch, incarnation: self.incarnation, after };
        if self.sent.is_none() {
            self.sent = self.take();
        }
        let Some(sent) = &mut self.sent else { return QueueStep::Nothing };
        match sent.stage {
            Stage::Ready { before } => {
                sent.stage = Stage::InFlight { before };
                QueueStep::Write(fence, Arc::clone(&sent.writes))
            }
            Stage::InFlight { .. } => {
                sent.stage = Stage::Unknown;
                QueueStep::ReadFence
            }
            Stage::Unknown | Stage::Refused => QueueStep::ReadFence,
            Stage::Conflicting => {
                let conditioned = sent.writes.iter().filter(|write| write.only_if() != OnlyIf::Always);
                QueueStep::ReadConditioned(conditioned.map(|write| write.id().clone()).collect())
            }
        }
    }

    /// Takes as many waiting writes as one batch can carry, in their order. Skips callers that were dropped.
    fn take(&mut self) -> Option<BatchInFlight> {
        let mut writes: Vec<DocumentWrite> = Vec::new();
        let mut callers = Vec::new();
        let mut ids = HashSet::new();
        let mut bytes = 0;
        while let Some(job) = self.waiting.front() {
            let more: usize = job.writes.iter().map(DocumentWrite::bytes).sum();
            let fits = writes.len() + job.writes.len() <= self.limits.max_batch
                && bytes + more <= self.limits.max_batch_bytes
                && job.writes.iter().all(|write| !ids.contains(write.id()));
            // The first one always fits: the caller of `push` has checked it.
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
        (!callers.is_empty()).then(|| BatchInFlight { writes: writes.into(), callers, stage })
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
            return self.applied(after);
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
            Stage::Unknown => {
                sent.stage = Stage::Ready { before: true };
                // Nothing has failed if its caller was dropped: the next caller does not wait for that.
                if self.failing_since.is_some() { Pace::AfterPause } else { Pace::AtOnce }
            }
            Stage::Ready { .. } | Stage::InFlight { .. } | Stage::Conflicting => Pace::AtOnce,
        }
    }

    pub(super) fn written(&mut self, now: Instant, outcome: Result<BatchOutcome, WriteError>) -> Pace {
        let (Some(after), Some(sent)) = (self.count, &mut self.sent) else { return Pace::AtOnce };
        let before = matches!(sent.stage, Stage::InFlight { before: true });
        match outcome {
            Ok(BatchOutcome::Written) => self.applied(after),
            Ok(BatchOutcome::Refused) => {
                sent.stage = Stage::Refused;
                Pace::AtOnce
            }
            Err(WriteError::NotApplied(cause)) => {
                sent.stage = Stage::Ready { before };
                self.failed(now, cause.to_string())
            }
            Err(WriteError::Unknown(cause)) => {
                sent.stage = Stage::Unknown;
                self.failed(now, cause.to_string());
                Pace::AtOnce
            }
            // Only this attempt is never applied; the earlier one may still be.
            Err(WriteError::Fatal(cause)) if before => {
                sent.stage = Stage::Unknown;
                self.failed(now, cause.to_string())
            }
            Err(WriteError::Fatal(cause)) => {
                sent.stage = Stage::Ready { before };
                self.refused_for_good(cause.to_string().into())
            }
            Err(WriteError::Replaced(cause)) => self.replaced(cause.to_string()),
        }
    }

    /// Answers the callers whose condition failed. The writes of the others are sent again.
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
            // No other writer can have changed it. Try again, within the timeout.
            self.sent = Some(BatchInFlight { stage: Stage::Ready { before: true }, ..sent });
            return self.failed(now, "refused, although the fence and every condition hold".to_owned());
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
            self.sent = Some(BatchInFlight { writes: writes.into(), callers, stage });
        }
        self.failing_since = None;
        Pace::AtOnce
    }

    fn applied(&mut self, after: DocumentVersion) -> Pace {
        let version = after.next();
        self.count = Some(version);
        self.failing_since = None;
        for (_, caller) in self.sent.take().into_iter().flat_map(|sent| sent.callers) {
            answer(caller, Ok(version));
        }
        Pace::AtOnce
    }

    /// Records a failed attempt. After the timeout every caller gets an error, and the next one begins anew (I10).
    fn failed(&mut self, now: Instant, cause: String) -> Pace {
        let since = *self.failing_since.get_or_insert(now);
        if now.since(since) >= self.timeout {
            let cause: Arc<str> = cause.into();
            self.give_up(&cause, DocumentWriteError::NotWritten { cause: Arc::clone(&cause) });
        }
        Pace::AfterPause
    }

    fn refused_for_good(&mut self, cause: Arc<str>) -> Pace {
        self.give_up(&cause, DocumentWriteError::Refused { cause: Arc::clone(&cause) });
        Pace::AtOnce
    }

    pub(super) fn replaced(&mut self, cause: String) -> Pace {
        self.end(Over::Lost(Loss::StorageReplaced { cause: cause.into() }))
    }

    /// Answers every caller, with `unsent` if its writes are never applied. A batch that may still be applied
    /// stays, and is settled before the next one is sent.
    fn give_up(&mut self, cause: &Arc<str>, unsent: DocumentWriteError) {
        self.failing_since = None;
        if let Some(sent) = &mut self.sent {
            let is_never_applied = matches!(sent.stage, Stage::Ready { before: false });
            let unknown = || DocumentWriteError::Unknown { cause: Arc::clone(cause) };
            for (_, caller) in mem::take(&mut sent.callers) {
                answer(caller, Err(if is_never_applied { unsent.clone() } else { unknown() }));
            }
            if is_never_applied {
                self.sent = None;
            }
        }
        for job in self.waiting.drain(..) {
            answer(job.caller, Err(unsent.clone()));
        }
    }

    pub(super) fn end(&mut self, over: Over) -> Pace {
        let sent = self.sent.take().into_iter().flat_map(|sent| sent.callers);
        for caller in sent.map(|(_, caller)| caller).chain(self.waiting.drain(..).map(|job| job.caller)) {
            answer(caller, Err(over.clone().into()));
        }
        self.over.get_or_insert(over);
        Pace::AtOnce
    }
}

fn answer(caller: oneshot::Sender<WriteResult>, answer: WriteResult) {
    drop(caller.send(answer));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Holder, Slot, Ttl, Version};

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn queue() -> WriteQueue {
        let limits = DocumentLimits {
            max_id_bytes: 1,
            max_body_bytes: 1,
            max_batch: 1,
            max_batch_bytes: 2,
            max_page: 1,
        };
        let (epoch, incarnation) = (Epoch::new(1).unwrap(), Incarnation::from_bytes([1; 16]));
        WriteQueue::new(epoch, incarnation, limits, TIMEOUT)
    }

    #[test]
    fn failures_before_a_write_do_not_shorten_its_timeout() {
        let mut queue = queue();
        queue.count = Some(DocumentVersion::NONE);
        let fail = |queue: &mut WriteQueue, now| {
            assert!(matches!(queue.next(), QueueStep::Write(..)));
            queue.written(now, Err(WriteError::NotApplied("busy".into())));
        };
        let began = Instant::from_nanos(0);
        let dropped = queue.push(Vec::new()).ok();
        fail(&mut queue, began);
        drop(dropped);
        let mut waits = queue.push(Vec::new()).ok().unwrap();
        fail(&mut queue, began.after(TIMEOUT));
        assert!(waits.try_recv().is_err(), "never sent, and given up");
        fail(&mut queue, began.after(TIMEOUT * 2));
        assert!(waits.try_recv().unwrap().is_err());
    }

    #[test]
    fn batch_that_an_earlier_attempt_may_apply_is_looked_up_and_never_called_not_written() {
        for refusal in [WriteError::NotApplied("busy".into()), WriteError::Fatal("denied".into())] {
            let mut queue = queue();
            queue.count = Some(DocumentVersion::NONE);
            let version = Version { incarnation: queue.incarnation, write: 1 };
            let (holder, ttl, epoch) = (Holder::new("here").unwrap(), Ttl::DEFAULT, queue.epoch);
            let entry = Entry { holder, version, ttl, epoch };
            let fence = || FenceState {
                slot: Slot::Held { entry: entry.clone(), proven_age: None },
                last: DocumentVersion::NONE,
            };
            let mut waits = queue.push(Vec::new()).ok().unwrap();
            let began = Instant::from_nanos(0);
            queue.next();
            queue.written(began, Err(WriteError::Unknown("no answer".into())));
            queue.fence_read(began, Ok(fence()));
            assert!(matches!(queue.next(), QueueStep::Write(..)));
            let is_fatal = matches!(refusal, WriteError::Fatal(_));
            queue.written(began, Err(refusal));
            assert!(waits.try_recv().is_err(), "given up");
            assert_eq!(matches!(queue.next(), QueueStep::ReadFence), is_fatal);
            if is_fatal {
                queue.fence_read(began, Ok(fence()));
                queue.next();
            }
            queue.written(began.after(TIMEOUT), Err(WriteError::NotApplied("busy".into())));
            let answer = waits.try_recv().unwrap();
            assert!(matches!(answer, Err(DocumentWriteError::Unknown { .. })), "{answer:?}");
        }
    }

    #[test]
    fn first_end_of_the_queue_is_what_later_writes_get() {
        let mut queue = queue();
        queue.end(Over::Deposed { current: None });
        queue.replaced("another file".to_owned());
        assert!(matches!(queue.push(Vec::new()), Err(Over::Deposed { .. })));
    }

    /// Shows I11.
    #[test]
    fn writes_whose_callers_were_dropped_do_not_pile_up() {
        let mut queue = queue();
        let waits = queue.push(Vec::new()).ok();
        (0..1000).for_each(|_| drop(queue.push(Vec::new()).ok()));
        assert!(waits.is_some() && !queue.waiting[0].caller.is_closed());
        assert!(queue.waiting.len() < 10, "{} writes wait", queue.waiting.len());
    }
}
