//! [`RemoteStorage`]: the storage behind a network. Every call is two messages, and each may be late, lost or doubled.
//! A request that was sent arrives even if its sender drops the future or crashes.

use crate::{
    clock::Process,
    faults::{Fate, Journey, Landing},
    records::{Outcome, Write},
    world::{LAST_SLOT, Sent, World},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use vvm_clock::{Clock, Instant};
use vvm_storage::{
    CurrentState, KEY_PREFIX_PAUSE, KEY_PREFIX_VVM_LEADER, Partition, Step, StepOutcome, SysVvmHints,
    SysVvmStorage,
};

/// How often a process is hinted at a change.
const FALSE_HINT: Duration = Duration::from_secs(7);

#[derive(Debug)]
pub(crate) struct RemoteStorage {
    pub(crate) world: Arc<World>,
    pub(crate) process: Process,
}

#[derive(Debug)]
struct Simulated(&'static str);

impl fmt::Display for Simulated {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for Simulated {}

fn key(at: &Partition) -> u32 {
    match at.as_bytes() {
        [KEY_PREFIX_VVM_LEADER, name_and_slot @ ..] => {
            name_and_slot.last_chunk().map_or(0, |slot| u32::from_be_bytes(*slot))
        }
        [KEY_PREFIX_PAUSE, ..] => LAST_SLOT + 1,
        _ => LAST_SLOT + 2,
    }
}

/// A message was lost: the caller waits until its own time-out.
async fn silence<T>() -> T {
    std::future::pending().await
}

/// Does something when a call is answered or dropped.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl RemoteStorage {
    async fn write(&self, write: Write) -> Result<Outcome, WriteError> {
        let sent = self.world.sent(self.process, &write);
        let leadership = write.leadership().filter(|_| !matches!(write, Write::Delete(..)));
        let world = &self.world;
        let _in_flight = leadership.map(|leadership| {
            world.write_begins(leadership);
            AtEnd(move || world.write_ends(leadership))
        });
        let journey = self.world.draw_journey();
        let (answer, answered) = oneshot::channel();
        let travel = travel(Arc::clone(&self.world), sent, write, journey, answer);
        self.world.spawn(Process::WORLD, "request", Box::pin(travel));
        match answered.await {
            Ok(answer) => answer,
            Err(_) => silence().await,
        }
    }

    async fn settle(&self, at: &Partition, value: Vec<u8>) -> Result<StepOutcome, WriteError> {
        let (at, wanted) = (at.clone(), value.clone());
        let settled = self.ask(move |world| world.look(|records, _| records.settle(at.as_bytes(), &value)));
        match settled.await {
            Ok(stands) if stands == wanted => Ok(StepOutcome::Applied),
            Ok(stands) => Ok(StepOutcome::Refused(CurrentState::Setting(stands))),
            Err(_) => Err(WriteError::Unknown(Simulated("simulated ambiguity").into())),
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        look: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let Journey { fate, there, back, .. } = self.world.draw_journey();
        let (answer, answered) = oneshot::channel();
        let world = Arc::clone(&self.world);
        let travel = async move {
            world.clock.sleep(there).await;
            let seen = look(&world);
            world.clock.sleep(back).await;
            let answered = match fate {
                Fate::Answered => Ok(seen),
                Fate::RequestLost | Fate::AnswerLost => return,
                Fate::NotApplied | Fate::Unknown(_) => {
                    Err(ReadError::Unavailable(Simulated("simulated read failure").into()))
                }
            };
            // A caller that was dropped needs no answer.
            drop(answer.send(answered));
        };
        self.world.spawn(Process::WORLD, "request", Box::pin(travel));
        match answered.await {
            Ok(answer) => answer,
            Err(_) => silence().await,
        }
    }
}

async fn travel(
    world: Arc<World>,
    sent: Sent,
    write: Write,
    journey: Journey,
    answer: oneshot::Sender<Result<Outcome, WriteError>>,
) {
    let Journey { fate, there, back, again } = journey;
    if let Some(again) = again.filter(|_| !matches!(fate, Fate::NotApplied | Fate::RequestLost)) {
        let copy = lands_again(Arc::clone(&world), sent, write.clone(), there + again);
        world.spawn(Process::WORLD, "second copy", Box::pin(copy));
    }
    world.clock.sleep(there).await;
    let reply = match fate {
        Fate::Answered => Ok(world.apply(&sent, &write)),
        Fate::AnswerLost => {
            world.apply(&sent, &write);
            world.count(|counts| counts.answer_lost += 1);
            return;
        }
        Fate::RequestLost => {
            world.count(|counts| counts.request_lost += 1);
            return;
        }
        Fate::NotApplied => {
            world.count(|counts| counts.not_applied += 1);
            Err(WriteError::NotApplied(Simulated("simulated refusal").into()))
        }
        Fate::Unknown(landing) => {
            match landing {
                Landing::Never => world.count(|counts| counts.unknown_not_applied += 1),
                Landing::BeforeTheAnswer => {
                    world.apply(&sent, &write);
                    world.count(|counts| counts.unknown_applied += 1);
                }
                Landing::After(delay) => {
                    let late = lands_late(Arc::clone(&world), sent, write, delay);
                    world.spawn(Process::WORLD, "late request", Box::pin(late));
                }
            }
            Err(WriteError::Unknown(Simulated("simulated ambiguity").into()))
        }
    };
    world.clock.sleep(back).await;
    drop(answer.send(reply));
}

async fn lands_late(world: Arc<World>, sent: Sent, write: Write, delay: Duration) {
    world.clock.sleep(delay).await;
    if world.apply(&sent, &write).is_none() {
        world.count(|counts| counts.unknown_then_applied += 1);
    }
}

async fn lands_again(world: Arc<World>, sent: Sent, write: Write, delay: Duration) {
    world.clock.sleep(delay).await;
    if world.apply(&sent, &write).is_some() {
        world.count(|counts| counts.refused_again += 1);
    }
}

#[async_trait]
impl SysVvmStorage for RemoteStorage {
    fn limits(&self) -> Limits {
        Limits {
            min_ttl: Duration::from_secs(1),
            max_key_bytes: 64,
            max_value_bytes: 255,
            scan_batch: usize::MAX,
        }
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        let key = key(&at);
        let write = match step {
            Step::Claim { from: Slot::Vacant(vacant), to } => Write::Insert(key, vacant, to),
            Step::Claim { from: Slot::Held { entry: observed, .. }, to } => {
                Write::TakeOver(key, observed, to)
            }
            Step::Renew { from, to } => Write::Swap(key, from, to),
            Step::Release { incarnation, epoch } => Write::Delete(key, incarnation, epoch),
            Step::Batch { fence, writes } => {
                let outcome = self.write(Write::Batch(key, fence, writes.into())).await?;
                return Ok(
                    outcome.map_or(StepOutcome::Applied, |_| StepOutcome::Refused(CurrentState::Nothing))
                );
            }
            Step::Settle { value } => return self.settle(&at, value).await,
        };
        Ok(self.write(write).await?.into())
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.ask(move |world| world.look(|records, now| records.slot(key(&at), now))).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let keys: Vec<u32> = at.iter().map(key).collect();
        self.ask(move |world| keys.iter().map(|key| world.read_stale(*key)).collect()).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.ask(move |world| world.look(|records, _: Instant| records.setting(at.as_bytes()))).await
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(LIMITS)
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let key = key(at);
        self.ask(move |world| world.look(|records, now| records.fence_state(key, now))).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (key, id) = (key(at), id.clone());
        self.ask(move |world| world.look(|records, _| records.document(key, &id))).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (key, scan) = (key(at), scan.clone());
        self.ask(move |world| world.look(|records, _| records.page(key, &scan))).await
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    async fn close(&self) {}
}

/// Hints that have nothing to do with changes: every one is false, late, or of an earlier change. Half of the
/// processes are told that they can rely on them.
#[async_trait]
impl SysVvmHints for RemoteStorage {
    async fn announce(&self, _topic: &Partition) {}

    async fn hinted(&self, _topic: &Partition) {
        self.world.clock.sleep(FALSE_HINT).await;
        self.world.count(|counts| counts.hints += 1);
    }

    fn listens(&self, _topic: &Partition) -> bool {
        let relies = self.process.0.is_multiple_of(2);
        self.world.count(|counts| counts.relied_on_hints += u64::from(relies));
        relies
    }
}

/// So small that batches are split and scans have several pages. A history fits into a document.
const LIMITS: DocumentLimits = DocumentLimits {
    max_id_bytes: 64,
    max_body_bytes: 40_000,
    max_batch: 4,
    max_batch_bytes: 50_000,
    max_page: 2,
};
