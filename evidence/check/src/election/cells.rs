//! [`CellWorld`]: the shipped `vvm_storage::cells::Cells` of each candidate on one storage, in place of the slot.
//! Another program deletes the slot's cell. A call is not interrupted, but its write may arrive late.

use super::{
    message::{Answer, Failure, Request},
    settings::Surroundings,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use ielections::{Entry, ReadError, Slot, WriteError};
use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use testing_time::MockWallClock;
use vvm_storage::{
    ClusterName, CurrentState, ElectionKey, Partition, SlotNumber, Step, StepOutcome, SysVvmStorage,
    cells::{Cell, CellCondition, CellLimits, CellStorage, CellWrite, Cells, Memory, Tag},
};

const NAME: &str = "n";

const FOREIGN: usize = 2;

const GARBAGE: &[u8] = b"garbage";

#[derive(Clone, Hash, Debug)]
struct Value {
    bytes: Bytes,
    number: u64,
    record: Option<Entry>,
}

#[derive(Clone, Hash, Debug)]
struct Write {
    bytes: Bytes,
    record: Option<Entry>,
    /// The number of the value that it replaces; `None` if there must be none.
    over: Option<u64>,
}

#[derive(Clone, Default, Hash, Debug)]
pub(super) struct CellWorld {
    values: BTreeMap<Partition, Value>,
    /// How many values there were. All have different tags.
    numbers: u64,
    late: Vec<Write>,
    memories: [Memory; 3],
    /// Whether the next write of the slot's cell is kept under way, and its answer is lost.
    keeps: bool,
    /// The records that were written since the world looked, with what they replaced.
    #[allow(clippy::type_complexity, reason = "before and after")]
    written: Vec<(Option<Entry>, Option<Entry>)>,
}

#[derive(Debug)]
struct Handle(Arc<Mutex<CellWorld>>);

fn slot() -> Partition {
    let slot = SlotNumber::new(NonZeroU32::MIN);
    ElectionKey { cluster: ClusterName::from(NAME), slot }.partition()
}

impl CellWorld {
    pub(super) fn settled(around: &Arc<Surroundings>) -> Self {
        let mut world = Self::default();
        let setting = Step::settle(&1_u32.to_be_bytes());
        let at = ClusterName::from(NAME).slot_count_partition();
        world.call(0, 0, around, async |cells| cells.commit(at, setting).await.is_ok());
        world.memories = Default::default();
        world.written.clear();
        world
    }

    pub(super) fn late(&self) -> usize {
        self.late.len()
    }

    /// Ends what is under way. An operator deletes what is no record.
    pub(super) fn heal(&mut self) {
        self.late.clear();
        self.values.retain(|_, value| value.bytes != GARBAGE);
    }

    pub(super) fn exists(&self) -> bool {
        self.values.contains_key(&slot())
    }

    pub(super) fn delete(&mut self) {
        self.values.remove(&slot());
    }

    pub(super) fn garble(&mut self) {
        self.numbers += 1;
        let value = Value { bytes: Bytes::from_static(GARBAGE), number: self.numbers, record: None };
        self.values.insert(slot(), value);
    }

    /// Another program that uses cells as we do replaces what stands.
    pub(super) fn overwrite(
        &mut self,
        now: u64,
        around: &Arc<Surroundings>,
        record: impl Fn(&Slot) -> Option<Entry>,
    ) {
        self.call(FOREIGN, now, around, async |cells| {
            let stands = cells.read(slot()).await.ok()?;
            cells.commit(slot(), Step::claim(&stands, &record(&stands)?)).await.ok()
        });
        self.forget(FOREIGN);
    }

    pub(super) fn forget(&mut self, number: usize) {
        self.memories[number] = Memory::default();
    }

    fn write(&mut self, at: &Partition, write: Write) -> Option<u64> {
        let stands = self.values.get(at);
        if stands.map(|value| value.number) != write.over {
            return None;
        }
        if *at == slot() {
            self.written.push((stands.and_then(|value| value.record.clone()), write.record.clone()));
        }
        self.numbers += 1;
        let value = Value { bytes: write.bytes, number: self.numbers, record: write.record };
        self.values.insert(at.clone(), value);
        Some(self.numbers)
    }

    fn call<T>(
        &mut self,
        number: usize,
        now: u64,
        around: &Arc<Surroundings>,
        call: impl AsyncFnOnce(&Cells<Handle>) -> T,
    ) -> Option<T> {
        let memory = self.memories[number].clone();
        let shared = Arc::new(Mutex::new(std::mem::take(self)));
        let wall = MockWallClock::new();
        wall.set(Duration::from_secs(1_000) + Duration::from_nanos(now));
        let cells =
            Cells::with(Handle(Arc::clone(&shared)), &memory, Arc::clone(around) as _, Arc::new(wall));
        // Nothing in it waits.
        let answer = call(&cells).now_or_never();
        let memory = cells.memory();
        *self = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.memories[number] = memory;
        answer
    }

    /// A request of a process runs on its handle. If it `keeps`, its write stays under way.
    pub(super) fn arrive(
        &mut self,
        number: usize,
        now: u64,
        around: &Arc<Surroundings>,
        (request, keeps): (&Request, bool),
    ) -> Result<Answer, Failure> {
        self.keeps = keeps;
        let answer = self.call(number, now, around, async |cells| match request {
            Request::Scan => shown(cells.peek(&[slot()]).await.map(|seen| seen.into_iter().next())),
            Request::Get => shown(cells.read(slot()).await.map(Some)),
            Request::Write(step) => match cells.commit(slot(), step.clone()).await {
                Ok(StepOutcome::Applied) => Ok(Answer(None)),
                Ok(StepOutcome::Refused(CurrentState::Slot(stands))) => Ok(Answer(Some(stands))),
                Ok(StepOutcome::Refused(_)) => Err(Failure::NotApplied),
                Err(WriteError::NotApplied(_)) => Err(Failure::NotApplied),
                Err(WriteError::Unknown(_)) => Err(Failure::Unanswered),
                Err(WriteError::Fatal(_)) => Err(Failure::Fatal),
                Err(WriteError::Replaced(_)) => Err(Failure::Replaced),
            },
        });
        self.keeps = false;
        answer.unwrap_or(Err(Failure::Unanswered))
    }

    /// A write that is under way arrives. Returns whether it applies.
    pub(super) fn land(&mut self, late: usize) -> bool {
        let write = self.late.remove(late);
        self.write(&slot(), write).is_some()
    }

    pub(super) fn take_written(&mut self) -> Vec<(Option<Entry>, Option<Entry>)> {
        std::mem::take(&mut self.written)
    }
}

#[async_trait]
impl CellStorage for Handle {
    fn limits(&self) -> CellLimits {
        CellLimits { min_ttl: Duration::ZERO, max_key_bytes: 2 << 10, max_cell_bytes: 1 << 20 }
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let world = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell =
            |value: &Value| Cell { value: value.bytes.clone(), tag: Tag::new(value.number.to_be_bytes()) };
        Ok(world.values.get(key).map(cell))
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        self.write_slot(key, value, None, expected).await
    }

    async fn write_slot(
        &self,
        key: &Partition,
        value: Bytes,
        record: Option<&Entry>,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        let over = match &expected {
            CellCondition::Absent => None,
            CellCondition::Tag(tag) => tag.as_bytes().try_into().ok().map(u64::from_be_bytes),
        };
        let write = Write { bytes: value, record: record.cloned(), over };
        let mut world = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if world.keeps && *key == slot() {
            world.late.push(write);
            return Err(WriteError::Unknown("under way".into()));
        }
        let number = world.write(key, write);
        Ok(number
            .map_or(CellWrite::Refused, |number| CellWrite::Written(Some(Tag::new(number.to_be_bytes())))))
    }

    async fn close(&self) {}
}

fn shown(seen: Result<Option<Slot>, ReadError>) -> Result<Answer, Failure> {
    match seen {
        Ok(slot) => Ok(Answer(slot)),
        Err(ReadError::Unavailable(_)) => Err(Failure::Unanswered),
        Err(ReadError::Fatal(_)) => Err(Failure::Fatal),
        Err(ReadError::Replaced(_)) => Err(Failure::Replaced),
    }
}
