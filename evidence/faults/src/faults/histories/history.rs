//! A history: what clients of a storage asked it, and what it answered, in a file with an object of JSON a line.
//! Package `servers` builds the program that checks it (`history-go`), with porcupine.
//!
//! | field | of | what |
//! |---|---|---|
//! | `at`, `client` | all | the partition, and who called |
//! | `from`, `to` | all | when it was called and answered, in nanoseconds; no `to` if the outcome is unknown |
//! | `call` | all | `claim`, `renew`, `release`, `batch`, `read`, `fence` or `document`; `fail-over` of no client and partition |
//! | `answer` | all | `applied`, `refused`, `not applied` or `unknown`; `shown` of a read |
//! | `guard` | steps | the slot that is replaced, or the leadership: its epoch and incarnation |
//! | `entry` | claims, renewals | the record |
//! | `after`, `writes` | batches | the count before it; `id`, `only_if` (`always`, `absent` or a version), and `body` but of a deletion |
//! | `slot` | refusals, reads | what was shown instead |
//! | `last` | `fence` | the count of batches |
//! | `id`, `document` | `document` | what was asked for, and `version` and `body`, or null |
//!
//! A slot has `epoch`, `incarnation`, `write`, `ttl` and `holder`; a vacancy only its last epoch, 0 if it was never
//! led. Reads that failed say nothing, and are left out, as is `peek`, which may be stale.
//!
//! After a fail-over PostgreSQL and MariaDB *adopt* each slot by a step of their own. The checker adds that step: once after a
//! fail-over, before the first answer that shows the slot as it was adopted.
//!
//! The guard of every step was seen before in an answer. No state of a slot or a count returns once it was replaced.
//! Hence a call of unknown outcome ends when an answer to a later call shows that its guard is gone: from then on
//! it can only be refused. And of the answers that show the same state, two suffice.

use super::{super::network::LastNotApplied, CLIENTS};
use ielections::{
    Document, DocumentId, DocumentWrite, FenceState, Incarnation, OnlyIf, ReadError, Slot, WriteError,
};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write as _},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use vvm_clock::{Clock as _, Instant, SystemClock};
use vvm_storage::{CurrentState, Partition, Step, StepOutcome, SysVvmStorage};

#[derive(Debug)]
pub(super) struct History {
    began: Instant,
    recorded: Mutex<Recorded>,
    writes: AtomicU64,
}

#[derive(Default, Debug)]
struct Recorded {
    lines: Vec<Value>,
    answers: BTreeMap<(&'static str, &'static str), u64>,
}

impl History {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { began: SystemClock::read(), recorded: Mutex::default(), writes: AtomicU64::new(0) })
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        for line in &self.recorded().lines {
            writeln!(file, "{line}")?;
        }
        file.flush()
    }

    pub(super) fn answers(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.recorded().answers.clone()
    }

    pub(super) fn next_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes a fail-over that loses nothing, which began at `from` and has ended.
    pub(super) fn failed_over(&self, from: Instant) {
        let (from, to) = (self.at(from), self.at(SystemClock::read()));
        let line =
            json!({ "call": "fail-over", "answer": "applied", "client": CLIENTS, "from": from, "to": to });
        self.add("fail-over", "applied", Some(line));
    }

    fn at(&self, instant: Instant) -> u64 {
        u64::try_from(self.began.until(instant).as_nanos()).unwrap_or(u64::MAX)
    }

    fn add(&self, call: &'static str, answer: &'static str, line: Option<Value>) {
        let mut recorded = self.recorded();
        *recorded.answers.entry((call, answer)).or_default() += 1;
        recorded.lines.extend(line);
    }

    /// Each change is one step, so poison says nothing here.
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a step, as far as its client knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Applied,
    /// Refused, and this slot was shown, but to a batch.
    Refused(Option<Slot>),
    NotApplied,
    Unknown,
}

/// The calls of one client on one handle.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) client: usize,
    pub(super) storage: Arc<dyn SysVvmStorage>,
    pub(super) history: Arc<History>,
    pub(super) clock: SystemClock,
    /// For the proxies of this client, if it has some.
    pub(super) not_applied: Option<Arc<LastNotApplied>>,
}

impl Recorder {
    /// Commits a step, and drops the call after `patience`. `name` is the partition's in the history.
    pub(super) async fn commit(&self, name: &str, at: &Partition, step: Step, patience: Duration) -> Outcome {
        let Some((call, mut line)) = described(&step) else { return Outcome::NotApplied };
        let from = SystemClock::read();
        let outcome = match self.within(patience, self.storage.commit(at.clone(), step)).await {
            Some(Ok(StepOutcome::Applied)) => Outcome::Applied,
            Some(Ok(StepOutcome::Refused(CurrentState::Slot(slot)))) => Outcome::Refused(Some(slot)),
            Some(Ok(StepOutcome::Refused(_))) => Outcome::Refused(None),
            Some(Err(WriteError::NotApplied(_) | WriteError::Fatal(_))) => Outcome::NotApplied,
            // A call that is dropped may be applied, too.
            Some(Err(WriteError::Unknown(_) | WriteError::Replaced(_))) | None => Outcome::Unknown,
        };
        let to = SystemClock::read();
        if let (Some(last), Outcome::NotApplied) = (&self.not_applied, &outcome) {
            last.is_now();
        }
        let answer = match &outcome {
            Outcome::Applied => "applied",
            Outcome::Refused(slot) => {
                line.extend(slot.iter().map(|slot| ("slot".into(), of_slot(slot))));
                "refused"
            }
            Outcome::NotApplied => "not applied",
            Outcome::Unknown => "unknown",
        };
        self.add(name, call, answer, line, from, to);
        outcome
    }

    pub(super) async fn read(&self, name: &str, at: &Partition, patience: Duration) -> Option<Slot> {
        let from = SystemClock::read();
        let slot = self.answer("read", self.within(patience, self.storage.read(at.clone())).await)?;
        let line = fields(json!({ "slot": of_slot(&slot) }));
        self.add(name, "read", "shown", line, from, SystemClock::read());
        Some(slot)
    }

    pub(super) async fn fence(&self, name: &str, at: &Partition, patience: Duration) -> Option<FenceState> {
        let from = SystemClock::read();
        let state = self.answer("fence", self.within(patience, self.storage.fence_state(at)).await)?;
        let line = fields(json!({ "slot": of_slot(&state.slot), "last": state.last.get() }));
        self.add(name, "fence", "shown", line, from, SystemClock::read());
        Some(state)
    }

    pub(super) async fn document(
        &self,
        name: &str,
        at: &Partition,
        id: &DocumentId,
        patience: Duration,
    ) -> Option<Option<Document>> {
        let from = SystemClock::read();
        let document = self.within(patience, self.storage.document(at, id)).await;
        let document = self.answer("document", document)?;
        let shown = document
            .as_ref()
            .map(|document| json!({ "version": document.version.get(), "body": text(&document.body) }));
        let line = fields(json!({ "id": text(id.as_bytes()), "document": shown }));
        self.add(name, "document", "shown", line, from, SystemClock::read());
        Some(document)
    }

    /// Drops a call after `patience`, which the contract allows.
    async fn within<T>(&self, patience: Duration, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = call => Some(answer),
            () = self.clock.sleep(patience) => None,
        }
    }

    fn answer<T>(&self, call: &'static str, answer: Option<Result<T, ReadError>>) -> Option<T> {
        let answer = answer.and_then(Result::ok);
        if answer.is_none() {
            self.history.add(call, "failed", None);
        }
        answer
    }

    fn add(
        &self,
        name: &str,
        call: &'static str,
        answer: &'static str,
        mut line: Map<String, Value>,
        from: Instant,
        to: Instant,
    ) {
        line.insert("at".into(), name.into());
        line.insert("client".into(), self.client.into());
        line.insert("call".into(), call.into());
        line.insert("answer".into(), answer.into());
        line.insert("from".into(), self.history.at(from).into());
        if answer != "unknown" {
            line.insert("to".into(), self.history.at(to).into());
        }
        self.history.add(call, answer, Some(Value::Object(line)));
    }
}

fn fields(of: Value) -> Map<String, Value> {
    match of {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The call and its fields. `None` for a setting.
fn described(step: &Step) -> Option<(&'static str, Map<String, Value>)> {
    let leadership = |incarnation: &Incarnation, epoch: u64| json!({ "epoch": epoch, "incarnation": incarnation.to_string() });
    let (call, line) = match step {
        Step::Claim { from, to } => {
            let to_slot = Slot::Held { entry: to.clone(), proven_age: None };
            ("claim", json!({ "guard": of_slot(from), "entry": of_slot(&to_slot) }))
        }
        Step::Renew { from, to } => {
            let [from, to_slot] =
                [from, to].map(|entry| Slot::Held { entry: entry.clone(), proven_age: None });
            ("renew", json!({ "guard": of_slot(&from), "entry": of_slot(&to_slot) }))
        }
        Step::Release { incarnation, epoch } => {
            ("release", json!({ "guard": leadership(incarnation, epoch.get()) }))
        }
        Step::Batch { fence, writes } => {
            let guard = leadership(&fence.incarnation, fence.epoch.get());
            let writes: Vec<_> = writes.iter().map(of_write).collect();
            let after = fence.after.get();
            ("batch", json!({ "guard": guard, "after": after, "writes": writes }))
        }
        Step::Settle { .. } => return None,
    };
    Some((call, fields(line)))
}

fn of_slot(slot: &Slot) -> Value {
    match slot {
        Slot::Held { entry, .. } => json!({
            "epoch": entry.epoch.get(),
            "incarnation": entry.incarnation().to_string(),
            "write": entry.version.write,
            "ttl": entry.ttl.get().as_nanos() as u64,
            "holder": entry.holder.as_str(),
        }),
        Slot::Vacant(_) => json!({ "epoch": slot.last_epoch().map_or(0, |epoch| epoch.get()) }),
    }
}

fn of_write(write: &DocumentWrite) -> Value {
    let only_if = match write.only_if() {
        OnlyIf::Always => "always".to_owned(),
        OnlyIf::Absent => "absent".to_owned(),
        OnlyIf::Version(version) => version.to_string(),
    };
    let body = match write {
        DocumentWrite::Put { body, .. } => Some(text(body)),
        DocumentWrite::Delete { .. } => None,
    };
    json!({ "id": text(write.id().as_bytes()), "only_if": only_if, "body": body })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
