//! [`RemoteStorage`]: the storage behind a network. Every call is two messages, and each may be late or lost.
//!
//! A request that was sent arrives even if its sender drops the future or crashes.

use crate::{
    executor::Process,
    faults::Fate,
    world::World,
    write::{Outcome, Write},
};
use async_trait::async_trait;
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use vvm_clock::Clock;

/// The storage as one process reaches it.
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

/// A message was lost: the caller waits until its own time-out.
async fn silence<T>() -> T {
    std::future::pending().await
}

/// A call to renew, until it is answered or dropped.
struct Renewal<'world> {
    world: &'world World,
    incarnation: Incarnation,
}

impl<'world> Renewal<'world> {
    fn begin(world: &'world World, incarnation: Incarnation) -> Self {
        world.renewal_begins(incarnation);
        Self { world, incarnation }
    }
}

impl Drop for Renewal<'_> {
    fn drop(&mut self) {
        self.world.renewal_ends(self.incarnation);
    }
}

impl RemoteStorage {
    async fn write(&self, write: Write) -> Result<Outcome, WriteError> {
        let (fate, there, back) = self.world.draw_write();
        let (answer, answered) = oneshot::channel();
        let travel = travel(Arc::clone(&self.world), self.process, write, fate, there, back, answer);
        self.world.spawn(Process::WORLD, "request", Box::pin(travel));
        match answered.await {
            Ok(answer) => answer,
            Err(_) => silence().await,
        }
    }

    async fn read<T>(&self, look: impl FnOnce(&World) -> T + Send) -> Result<T, ReadError> {
        let (fate, there, back) = self.world.draw_write();
        self.world.clock.sleep(there).await;
        let seen = look(&self.world);
        self.world.clock.sleep(back).await;
        match fate {
            Fate::Answered => Ok(seen),
            Fate::RequestLost | Fate::AnswerLost => silence().await,
            Fate::NotApplied | Fate::Unknown { .. } => {
                Err(ReadError::Unavailable(Simulated("simulated read failure").into()))
            }
        }
    }
}

async fn travel(
    world: Arc<World>,
    process: Process,
    write: Write,
    fate: Fate,
    there: Duration,
    back: Duration,
    answer: oneshot::Sender<Result<Outcome, WriteError>>,
) {
    let sent = world.sent(process, &write);
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
        Fate::Unknown { applied } => {
            if applied {
                world.apply(&sent, &write);
                world.count(|counts| counts.unknown_applied += 1);
            } else {
                world.count(|counts| counts.unknown_not_applied += 1);
            }
            Err(WriteError::Unknown(Simulated("simulated ambiguity").into()))
        }
    };
    world.clock.sleep(back).await;
    // A caller that was dropped needs no answer.
    drop(answer.send(reply));
}

#[async_trait]
impl TtlStorage<u32> for RemoteStorage {
    fn limits(&self) -> Limits {
        Limits {
            min_ttl: Duration::from_secs(1),
            max_key_bytes: 4,
            max_value_bytes: 255,
            scan_batch: usize::MAX,
        }
    }

    async fn insert_if_not_exist(
        &self,
        key: &u32,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.write(Write::Insert(*key, vacant, entry.clone())).await.map(claim)
    }

    async fn take_over(&self, key: &u32, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        self.write(Write::TakeOver(*key, observed.clone(), entry.clone())).await.map(claim)
    }

    async fn compare_and_swap(&self, key: &u32, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let _renewal = Renewal::begin(&self.world, held.incarnation());
        let outcome = self.write(Write::Swap(*key, held.clone(), entry.clone())).await?;
        Ok(outcome.map_or(Swap::Swapped, Swap::Mismatch))
    }

    async fn compare_and_delete(
        &self,
        key: &u32,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let outcome = self.write(Write::Delete(*key, incarnation, epoch)).await?;
        Ok(outcome.map_or(Delete::Deleted, Delete::Mismatch))
    }

    async fn get(&self, key: &u32) -> Result<Slot, ReadError> {
        self.read(|world| world.read(*key)).await
    }

    async fn scan(&self, keys: &[u32]) -> Result<Vec<Slot>, ReadError> {
        self.read(|world| keys.iter().map(|key| world.read_stale(*key)).collect()).await
    }

    async fn close(&self) {}
}

fn claim(outcome: Outcome) -> Claim {
    outcome.map_or(Claim::Claimed, Claim::Refused)
}
