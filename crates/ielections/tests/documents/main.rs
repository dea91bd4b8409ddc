//! The documents of one leadership in mock time: which batches are applied, in which order, and their
//! answers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy knows tests, but not their helpers")]

mod ending;
mod settling;
mod storage;
mod writer;

use bytes::Bytes;
use ielections::{
    Candidacy, DocumentId, DocumentWrite, Documents, Holder, Layer as _, Leadership, OnlyIf, Terms, Ttl,
    testing::{Model, elections_suite::Process, mock::FaultyStorage},
};
use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};
use storage::Storage;
use testing_time::MockClock;
use vvm_clock::Clock;

const KEY: u32 = 1;
const TTL: Duration = Ttl::DEFAULT.get();
/// The intervals of the design for a TTL of 20 s.
const ATTEMPT: Duration = TTL.checked_div(10).unwrap();
const PAUSE: Duration = TTL.checked_div(20).unwrap();

/// A storage with documents, a network before its records, and their clock.
struct Bench {
    clock: MockClock,
    records: Arc<FaultyStorage<u32>>,
    storage: Arc<Storage>,
}

impl Bench {
    fn new() -> Self {
        let clock = MockClock::new();
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let model = Model::new();
        let records = Arc::new(FaultyStorage::new(model.open(), Arc::clone(&time)));
        let storage = Arc::new(Storage::new(Arc::clone(&records) as _, time));
        Self { clock, records, storage }
    }

    fn process(&self) -> Process<u32> {
        let storage = Arc::clone(&self.storage).into_storage();
        Process::start(storage, Arc::new(self.clock.clone()))
    }

    /// The applied batches, in order.
    fn landed(&self) -> Vec<Vec<String>> {
        self.storage.landed().iter().map(|batch| bodies(batch)).collect()
    }

    /// Polls `seen` once a millisecond until it is true.
    async fn until(&self, seen: impl Fn() -> bool) {
        while !seen() {
            self.clock.sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn lead(process: &Process<u32>) -> Leadership {
    let terms = Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT);
    process.elections.acquire(Candidacy { slots: vec![KEY], terms }).await.unwrap().1
}

fn documents(leadership: &Leadership) -> Documents {
    leadership.standing().documents().unwrap()
}

fn id(name: &str) -> DocumentId {
    DocumentId::new(name.to_owned()).unwrap()
}

fn put_if(name: &str, body: &str, only_if: OnlyIf) -> DocumentWrite {
    DocumentWrite::Put { id: id(name), body: Bytes::from(body.to_owned()), only_if }
}

fn put(name: &str, body: &str) -> DocumentWrite {
    put_if(name, body, OnlyIf::Always)
}

/// The bodies that a batch puts, which identify it.
fn bodies(batch: &[DocumentWrite]) -> Vec<String> {
    let body = |write: &DocumentWrite| match write {
        DocumentWrite::Put { body, .. } => Some(String::from_utf8_lossy(body).into_owned()),
        DocumentWrite::Delete { .. } => None,
    };
    batch.iter().filter_map(body).collect()
}

/// Begins a call. Returns whether it is pending.
async fn waits(call: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *call).poll(cx).is_pending())).await
}

/// Runs `test` on a runtime that advances the clock whenever no task can run.
fn on(clock: &MockClock, test: impl Future<Output = ()>) {
    let idle = clock.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || _ = idle.advance_to_next())
        .build()
        .unwrap();
    let limit = clock.sleep(Duration::from_secs(3600));
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = test => {}
            () = limit => panic!("not done after an hour"),
        }
    });
}
