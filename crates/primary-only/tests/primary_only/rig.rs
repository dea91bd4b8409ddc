//! Processes that share a database in memory. Their clock moves only when all tasks are idle, so that every
//! run of a test is the same.

use crate::{
    faults::FaultyDocuments,
    probe::{Probe, Steps},
    stepping::CountingSpawn,
};
use ielections::{
    Candidacy, Document, DocumentId, DocumentVersion, DocumentWrite, Elections, Entropy, Env, Holder,
    Layer as _, Leadership, OnlyIf, Scan, Slot, Spawn, Standing, Terms, Ttl, TtlStorage as _,
};
use primary_only::{
    Handle, LeadError, Registry, RegistryBuilder, RegistryConfig, ServiceHandle, ServiceState,
};
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use testing_time::{MockClock, MockWallClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant, Sleep};
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

/// Runs a test on one thread. Time passes only while all tasks wait.
pub(crate) fn run<Test: Future<Output = ()>>(test: impl FnOnce(Cluster) -> Test) {
    let cluster = Cluster::new();
    let clock = cluster.clock.clone();
    let limit = clock.now().after(Duration::from_secs(3600));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            let next = clock.advance_to_next();
            assert!(next.is_some_and(|now| now < limit), "the test waits for an event that never happens");
        })
        .build()
        .unwrap();
    runtime.block_on(test(cluster));
}

/// Slots in one storage.
pub(crate) struct Cluster {
    pub(crate) clock: MockClock,
    database: Arc<MemDatabase>,
}

/// One process.
pub(crate) struct Process {
    pub(crate) name: Holder,
    pub(crate) env: Env,
    pub(crate) documents: Arc<FaultyDocuments>,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    pub(crate) tasks: Arc<CountingSpawn>,
    pub(crate) registry: Registry,
    pub(crate) probe: Probe,
    pub(crate) service: ServiceHandle<Probe>,
}

/// A registry that runs under a leadership.
pub(crate) struct LedTerm {
    pub(crate) leadership: Leadership,
    pub(crate) stop: CancellationToken,
    pub(crate) led: JoinHandle<Result<(), LeadError>>,
}

impl Cluster {
    fn new() -> Self {
        let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
        let database = MemDatabase::new(Arc::new(clock.clone()));
        Self { clock, database }
    }

    pub(crate) fn key(slot: u32) -> ElectionKey {
        let slot = SlotNumber::new(NonZeroU32::new(slot).unwrap());
        ElectionKey { cluster: "tests".into(), slot }
    }

    pub(crate) fn sleep(&self, seconds: u64) -> Sleep {
        self.clock.sleep(Duration::from_secs(seconds))
    }

    /// Returns a storage that no fault of a process affects.
    pub(crate) fn storage(&self) -> ElectionsTtlStorage {
        ElectionsTtlStorage::new(self.database.open())
    }

    /// Returns all documents of the first slot.
    pub(crate) async fn documents(&self) -> Vec<Document> {
        let storage = self.storage();
        let scan = Scan { limit: 1_000, ..Scan::default() };
        storage.documents().unwrap().scan_documents(&Self::key(1), &scan).await.unwrap().documents
    }

    /// Returns a process with one service, a probe.
    pub(crate) fn process(&self, name: &str) -> Process {
        self.process_with(name, Probe::default())
    }

    pub(crate) fn process_with(&self, name: &str, probe: Probe) -> Process {
        let documents = Arc::new(FaultyDocuments::before(Arc::new(self.storage())));
        let tasks = Arc::new(CountingSpawn::default());
        let trigger = RecordingTrigger::on(Arc::new(self.clock.clone()));
        let env = Env {
            clock: Arc::new(self.clock.clone()),
            wall: Arc::new(MockWallClock::new()),
            deadman: Deadman::with_trigger(trigger),
            entropy: Arc::new(Seeded(AtomicU64::new(name.bytes().map(u64::from).sum()))),
            spawn: Arc::clone(&tasks) as Arc<dyn Spawn>,
        };
        let elections = Arc::new(Elections::new(Arc::clone(&documents).into_storage(), env.clone()));
        let mut builder = RegistryBuilder::new(RegistryConfig::new(&env));
        let service = builder.register(probe.clone()).unwrap();
        let registry = builder.build();
        let name = Holder::new(name).unwrap();
        Process { name, env, documents, elections, tasks, registry, probe, service }
    }
}

impl Process {
    /// Returns elections for a VVM, which closes them.
    pub(crate) fn fresh_elections(&self) -> Arc<Elections<ElectionKey>> {
        Arc::new(Elections::new(Arc::clone(&self.documents).into_storage(), self.env.clone()))
    }

    /// Waits until the process leads, and returns the instance of this id.
    pub(crate) async fn created(&self, id: &str) -> Handle<Probe> {
        loop {
            match self.service.get_or_create(id.into(), Steps::new()).await {
                Ok(got) => return got.handle,
                Err(_) => self.env.clock.sleep(Duration::from_millis(1)).await,
            }
        }
    }

    pub(crate) async fn acquire(&self, slot: u32) -> Leadership {
        let terms = Terms::new(self.name.clone(), Ttl::DEFAULT);
        let candidacy = Candidacy { slots: vec![Cluster::key(slot)], terms };
        let (_, leadership) = self.elections.acquire(candidacy).await.unwrap();
        leadership
    }

    /// Acquires the first slot, and steps up.
    pub(crate) async fn lead(&self) -> LedTerm {
        self.lead_slot(1).await
    }

    pub(crate) async fn lead_slot(&self, slot: u32) -> LedTerm {
        self.step_up(self.acquire(slot).await).await
    }

    /// Steps up under a leadership, and returns as soon as the term has begun.
    pub(crate) async fn step_up(&self, leadership: Leadership) -> LedTerm {
        let stop = CancellationToken::new();
        let (registry, standing, told) = (self.registry.clone(), leadership.standing().clone(), stop.clone());
        let led = tokio::spawn(async move { registry.lead(standing, told).await });
        while matches!(self.registry.status()[0].state, ServiceState::NotLeading) && !led.is_finished() {
            tokio::task::yield_now().await;
        }
        LedTerm { leadership, stop, led }
    }

    /// Writes a document past its instance, as this leader.
    pub(crate) async fn put(&self, standing: &Standing, id: &[u8], body: &[u8]) -> DocumentVersion {
        let (id, body) = (DocumentId::new(id.to_vec()).unwrap(), body.to_vec().into());
        let write = DocumentWrite::Put { id, body, only_if: OnlyIf::Always };
        standing.documents().unwrap().write(vec![write]).await.unwrap()
    }
}

impl LedTerm {
    pub(crate) fn standing(&self) -> &Standing {
        self.leadership.standing()
    }

    /// Steps down, and releases the leadership.
    pub(crate) async fn end(self) -> Result<(), LeadError> {
        self.stop.cancel();
        let led = self.led.await.unwrap();
        self.leadership.release().await;
        led
    }
}

/// Deletes the first slot's record without the leader's knowledge.
pub(crate) async fn depose(cluster: &Cluster) {
    let (storage, key) = (cluster.storage(), Cluster::key(1));
    let Slot::Held { entry, .. } = storage.get(&key).await.unwrap() else { panic!("the slot is vacant") };
    storage.compare_and_delete(&key, entry.incarnation(), entry.epoch).await.unwrap();
}

/// Deterministic random numbers.
#[derive(Debug)]
struct Seeded(AtomicU64);

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // The increment and the mixing of splitmix64.
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes()[..chunk.len()]);
        }
    }
}
