//! [`CellWorld`]: the shipped `vvm_storage::cells::Cells` of each candidate on one storage, in place of the slot.
//! Another program deletes the slot's cell. A call is not interrupted, but its write may arrive late.

use super::{
    process::{Answer, Failure, Request},
    settings::{Context, Surroundings},
    world::World,
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
use testing_time::{MockClock, MockWallClock};
use vvm_clock::Instant;
use vvm_storage::{
    ClusterName, Done, ElectionKey, Partition, Shown, SlotNumber, Step, SysVvmStorage,
    cells::{Cell, CellLimits, CellStorage, CellWrite, Cells, Expected, Memory, Tag},
};

const NAME: &str = "n";

/// A value of a cell, its number, and its record.
#[derive(Clone, Hash, Debug)]
struct Value {
    bytes: Bytes,
    number: u64,
    record: Option<Entry>,
}

/// A write of the slot's cell that is under way.
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

/// A handle on the storage.
#[derive(Debug)]
struct Handle(Arc<Mutex<CellWorld>>);

fn slot() -> Partition {
    let slot = SlotNumber::new(NonZeroU32::MIN);
    ElectionKey { cluster: ClusterName::from(NAME), slot }.partition()
}

impl CellWorld {
    /// A name with one slot that was never led.
    pub(super) fn settled(around: &Arc<Surroundings>) -> Self {
        let mut world = Self::default();
        let setting = Step::settle(&1_u32.to_be_bytes());
        let at = ClusterName::from(NAME).slot_count_partition();
        world.call(0, (Instant::ORIGIN, 0), around, async |cells| cells.commit(at, setting).await.is_ok());
        world.memories = Default::default();
        world.written.clear();
        world
    }

    pub(super) fn late(&self) -> usize {
        self.late.len()
    }

    pub(super) fn heal(&mut self) {
        self.late.clear();
    }

    pub(super) fn exists(&self) -> bool {
        self.values.contains_key(&slot())
    }

    pub(super) fn delete(&mut self) {
        self.values.remove(&slot());
    }

    /// The process starts again.
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

    /// Runs a call of one process to its end.
    fn call<T>(
        &mut self,
        number: usize,
        (clock, now): (Instant, u64),
        around: &Arc<Surroundings>,
        call: impl AsyncFnOnce(&Cells<Handle>) -> T,
    ) -> Option<T> {
        let memory = self.memories[number].clone();
        let shared = Arc::new(Mutex::new(std::mem::take(self)));
        let wall = MockWallClock::new();
        wall.set(Duration::from_secs(1_000) + Duration::from_nanos(now));
        let clock = Arc::new(MockClock::starting_at(clock));
        let cells =
            Cells::with(Handle(Arc::clone(&shared)), &memory, clock, Arc::clone(around) as _, Arc::new(wall));
        // Nothing in it waits.
        let answer = call(&cells).now_or_never();
        let memory = cells.memory();
        *self = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.memories[number] = memory;
        answer
    }
}

#[async_trait]
impl CellStorage for Handle {
    fn limits(&self) -> CellLimits {
        CellLimits { min_ttl: Duration::ZERO, max_key_bytes: 2 << 10, max_cell_bytes: 1 << 20 }
    }

    fn shared_between_processes(&self) -> bool {
        true
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
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        self.write_slot(key, value, None, expected).await
    }

    async fn write_slot(
        &self,
        key: &Partition,
        value: Bytes,
        record: Option<&Entry>,
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        let over = match &expected {
            Expected::Absent => None,
            Expected::Tag(tag) => tag.as_bytes().try_into().ok().map(u64::from_be_bytes),
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

impl World {
    /// A request of a process runs on its handle. If it `keeps`, its write stays under way.
    pub(super) fn arrive_at_cells(
        &mut self,
        number: usize,
        request: &Request,
        keeps: bool,
        cx: &mut Context<'_>,
    ) -> Result<Answer, Failure> {
        let times = (self.processes[number].clock, self.now);
        let Some(cells) = &mut self.cells else { return Err(Failure::Unanswered) };
        cells.keeps = keeps;
        let around = Arc::clone(cx.around);
        let answer = cells.call(number, times, &around, async |cells| match request {
            Request::Scan => shown(cells.peek(&[slot()]).await.map(|seen| seen.into_iter().next())),
            Request::Get => shown(cells.read(slot()).await.map(Some)),
            Request::Write(step) => match cells.commit(slot(), step.clone()).await {
                Ok(Done::Applied) => Ok(Answer(None)),
                Ok(Done::Refused(Shown::Slot(stands))) => Ok(Answer(Some(stands))),
                Ok(Done::Refused(_)) => Err(Failure::NotApplied),
                Err(WriteError::NotApplied(_)) => Err(Failure::NotApplied),
                Err(WriteError::Unknown(_)) => Err(Failure::Unanswered),
                Err(WriteError::Fatal(_) | WriteError::Replaced(_)) => Err(Failure::Replaced),
            },
        });
        cells.keeps = false;
        let answer = answer.unwrap_or(Err(Failure::Unanswered));
        cx.notes.tell(|| format!("    the handle of {} answers {answer:?}", self.processes[number].name));
        self.observe_cells(cx);
        answer
    }

    /// A write that is under way arrives.
    pub(super) fn cell_lands(&mut self, late: usize, cx: &mut Context<'_>) {
        let Some(cells) = &mut self.cells else { return };
        let write = cells.late.remove(late);
        cx.notes.reach(match cells.write(&slot(), write) {
            Some(_) => "a late write of a cell that applies",
            None => "a late write of a cell that is refused",
        });
        self.observe_cells(cx);
    }

    /// What was written since the last look: epochs rise, and no write lands after the next acquisition (I2).
    fn observe_cells(&mut self, cx: &mut Context<'_>) {
        let written = self.cells.as_mut().map(|cells| std::mem::take(&mut cells.written)).unwrap_or_default();
        let is_placeholder = |entry: &Entry| entry.holder.as_str().starts_with("none:");
        for (before, after) in written {
            cx.notes.tell(|| format!("    the cell has {after:?}"));
            let was = before.as_ref().is_some_and(is_placeholder);
            match (&before, &after) {
                (Some(before), Some(after)) if before.incarnation() == after.incarnation() => {
                    cx.notes.reach(if was { "a shorter placeholder" } else { "a cell is renewed" });
                    if !was {
                        self.landed(after.epoch, after.incarnation(), cx);
                    }
                }
                (_, Some(after)) => {
                    let follows = self.last_was_placeholder;
                    self.last_was_placeholder = is_placeholder(after);
                    cx.notes.reach(match (is_placeholder(after), was) {
                        (true, _) if follows => "a placeholder after a placeholder",
                        (true, _) => "a placeholder",
                        (false, true) => "a claim over a placeholder",
                        (false, false) if before.is_none() => "a claim of a vacant cell",
                        (false, false) => "a claim over a record",
                    });
                    // Two placeholders within a millisecond may have one epoch. Nothing leads under them.
                    if !is_placeholder(after) {
                        self.claimed(after, cx);
                    }
                }
                (Some(before), None) => {
                    cx.notes.reach("a cell is released");
                    self.landed(before.epoch, before.incarnation(), cx);
                }
                (None, None) => {}
            }
            for sent in self.processes.iter_mut().flat_map(|process| &mut process.sent) {
                sent.applied |= after.as_ref().is_some_and(|after| sent.version == after.version);
            }
        }
    }
}

fn shown(seen: Result<Option<Slot>, ReadError>) -> Result<Answer, Failure> {
    match seen {
        Ok(slot) => Ok(Answer(slot)),
        Err(ReadError::Unavailable(_)) => Err(Failure::Unanswered),
        Err(ReadError::Fatal(_) | ReadError::Replaced(_)) => Err(Failure::Replaced),
    }
}
