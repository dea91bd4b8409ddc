//! Processes that share a database in memory, and a service whose instances run a test's code.

use crate::tasks::{Change, CountingSpawn, Journal};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ielections::{
    Candidacy, Document, DocumentVersion, Elections, Env, Holder, Leadership, Scan, Slot, Spawn, Standing,
    Terms, Ttl, TtlStorage as _,
    testing::{
        self, in_mock_time,
        mock::{FaultyStorage, Verb},
        put,
    },
};
use primary_only::{
    BoxError, ExistingTasks, Handle, LeadError, PrepareContext, Registry, RegistryBuilder, RegistryConfig,
    RunContext, Service, ServiceHandle, ServiceState, Task, TermInterrupted,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};
use testing_time::MockClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock as _, Instant, Sleep};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

pub(crate) fn run<Test: Future<Output = ()>>(test: impl FnOnce(Cluster) -> Test) {
    let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
    let database = MemDatabase::new(Arc::new(clock.clone()));
    in_mock_time(&clock, test(Cluster { clock: clock.clone(), database }));
}

pub(crate) fn in_term(test: impl AsyncFnOnce(&Cluster, &Process, &LedTerm)) {
    run(async |cluster| {
        let process = cluster.process("a");
        let term = process.lead().await;
        test(&cluster, &process, &term).await;
        term.end().await.unwrap();
    });
}

pub(crate) struct Cluster {
    pub(crate) clock: MockClock,
    database: Arc<MemDatabase>,
}

pub(crate) struct Process {
    pub(crate) name: Holder,
    pub(crate) env: Env,
    pub(crate) documents: Arc<FaultyStorage<ElectionKey>>,
    pub(crate) called: Change,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    pub(crate) tasks: Arc<CountingSpawn>,
    pub(crate) registry: Registry,
    pub(crate) probe: Probe,
    pub(crate) service: ServiceHandle<Probe>,
}

pub(crate) struct LedTerm {
    pub(crate) leadership: Leadership,
    pub(crate) stop: CancellationToken,
    pub(crate) led: JoinHandle<Result<(), LeadError>>,
}

impl Cluster {
    pub(crate) fn key() -> ElectionKey {
        ElectionKey { cluster: "tests".into(), slot: SlotNumber::FIRST }
    }

    pub(crate) fn sleep(&self, seconds: u64) -> Sleep {
        self.clock.sleep(Duration::from_secs(seconds))
    }

    pub(crate) fn storage(&self) -> ElectionsTtlStorage {
        ElectionsTtlStorage::new(self.database.open())
    }

    pub(crate) async fn documents(&self) -> Vec<Document> {
        let storage = self.storage();
        let scan = Scan { limit: 1_000, ..Scan::default() };
        storage.documents().unwrap().scan_documents(&Self::key(), &scan).await.unwrap().documents
    }

    pub(crate) fn process(&self, name: &str) -> Process {
        let probe = Probe::default();
        let called = Change::default();
        let documents = FaultyStorage::new(Arc::new(self.storage()), Arc::new(self.clock.clone()));
        documents.watch({
            let called = called.clone();
            move |_| called.happened()
        });
        let documents = Arc::new(documents);
        let tasks = Arc::new(CountingSpawn::default());
        let env = Env { spawn: Arc::clone(&tasks) as Arc<dyn Spawn>, ..testing::env(&self.clock) };
        let elections = Arc::new(Elections::new(Arc::clone(&documents) as _, env.clone()));
        let mut builder = RegistryBuilder::new(RegistryConfig::new(&env));
        let service = builder.register(probe.clone()).unwrap();
        let registry = builder.build();
        let name = Holder::new(name).unwrap();
        Process { name, env, documents, called, elections, tasks, registry, probe, service }
    }
}

impl Process {
    pub(crate) fn fresh_elections(&self) -> Arc<Elections<ElectionKey>> {
        Arc::new(Elections::new(Arc::clone(&self.documents) as _, self.env.clone()))
    }

    pub(crate) async fn created(&self, id: &str) -> Handle<Probe> {
        loop {
            match self.service.get_or_create(id.into(), Steps::new()).await {
                Ok(got) => return got.handle,
                Err(_) => self.env.clock.sleep(Duration::from_millis(1)).await,
            }
        }
    }

    pub(crate) async fn new_instance(&self, id: &str) -> Handle<Probe> {
        self.service.get_or_create(id.into(), Steps::new()).await.unwrap().handle
    }

    pub(crate) async fn persisted(&self, id: &str) -> Handle<Probe> {
        let instance = self.new_instance(id).await;
        instance.persisted().await.unwrap();
        instance
    }

    pub(crate) async fn found(&self, id: &str) -> Option<Handle<Probe>> {
        self.service.lookup(&id.into()).await.unwrap()
    }

    pub(crate) async fn wait_for_scans(&self, scans: u64) {
        self.called.until(|| self.documents.count(Verb::ScanDocuments) >= scans).await;
    }

    pub(crate) fn runners(&self) -> usize {
        self.tasks.alive().get("primary-only runner").copied().unwrap_or_default()
    }

    pub(crate) async fn acquire(&self) -> Leadership {
        let terms = Terms::new(self.name.clone(), Ttl::DEFAULT);
        let candidacy = Candidacy { slots: vec![Cluster::key()], terms };
        let (_, leadership) = self.elections.acquire(candidacy).await.unwrap();
        leadership
    }

    pub(crate) async fn lead(&self) -> LedTerm {
        self.step_up(self.acquire().await).await
    }

    pub(crate) async fn step_up(&self, leadership: Leadership) -> LedTerm {
        let stop = CancellationToken::new();
        let (registry, standing, told) = (self.registry.clone(), leadership.standing().clone(), stop.clone());
        let led = tokio::spawn(async move { registry.lead(standing, told).await });
        while matches!(self.registry.status()[0].state, ServiceState::NotLeading) && !led.is_finished() {
            tokio::task::yield_now().await;
        }
        LedTerm { leadership, stop, led }
    }

    pub(crate) async fn put(&self, standing: &Standing, id: &[u8], body: &[u8]) -> DocumentVersion {
        standing.documents().unwrap().write(vec![put(id, body)]).await.unwrap()
    }
}

impl LedTerm {
    pub(crate) fn standing(&self) -> &Standing {
        self.leadership.standing()
    }

    pub(crate) async fn end(self) -> Result<(), LeadError> {
        self.stop.cancel();
        let led = self.led.await.unwrap();
        self.leadership.release().await;
        led
    }
}

pub(crate) async fn release(storage: &FaultyStorage<ElectionKey>, verb: Verb) {
    storage.pass_always(verb);
    storage.land_late().await;
}

pub(crate) async fn depose(cluster: &Cluster) {
    let (storage, key) = (cluster.storage(), Cluster::key());
    let Slot::Held { entry, .. } = storage.get(&key).await.unwrap() else { panic!("the slot is vacant") };
    storage.compare_and_delete(&key, entry.incarnation(), entry.epoch).await.unwrap();
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Steps {
    pub(crate) taken: u64,
    pub(crate) request: String,
}

type Act = Arc<dyn Fn(RunContext<Steps>, Probe) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
type Prepare = Arc<dyn Fn(PrepareContext) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct Probe {
    pub(crate) journal: Journal,
    pub(crate) go: Signals,
    acts: Arc<Mutex<BTreeMap<String, Act>>>,
    prepare: Arc<Mutex<Option<Prepare>>>,
}

pub(crate) struct ProbeTask {
    id: String,
    request: String,
    began_with: u64,
    probe: Probe,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn requesting(request: &str) -> Self {
        Self { request: request.into(), ..Self::default() }
    }

    pub(crate) fn next(&self) -> Self {
        Self { taken: self.taken + 1, ..self.clone() }
    }
}

impl Probe {
    /// Sets the run of the instance of this id. The default is [`hold`].
    pub(crate) fn act<Acting>(
        &self,
        id: &str,
        act: impl Fn(RunContext<Steps>, Probe) -> Acting + Send + Sync + 'static,
    ) where
        Acting: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let act: Act = Arc::new(move |cx, probe| Box::pin(act(cx, probe)));
        self.acts.lock().unwrap().insert(id.into(), act);
    }

    pub(crate) fn prepare_by<Preparing>(
        &self,
        prepare: impl Fn(PrepareContext) -> Preparing + Send + Sync + 'static,
    ) where
        Preparing: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        *self.prepare.lock().unwrap() = Some(Arc::new(move |cx| Box::pin(prepare(cx))));
    }
}

pub(crate) async fn hold(mut cx: RunContext<Steps>) -> Result<(), BoxError> {
    cx.state.insert().await?;
    cx.stop.cancelled().await;
    Err(TermInterrupted.into())
}

#[async_trait]
impl Service for Probe {
    type Id = String;
    type Doc = Steps;
    type Task = ProbeTask;

    const NAME: &'static str = "probe";

    async fn prepare(&self, cx: PrepareContext) -> Result<(), BoxError> {
        self.journal.write("prepares");
        let prepare = self.prepare.lock().unwrap().clone();
        match prepare {
            Some(prepare) => prepare(cx).await,
            None => Ok(()),
        }
    }

    fn conflicts(
        &self,
        _: &String,
        doc: &Steps,
        mut others: ExistingTasks<'_, Self>,
    ) -> Result<(), BoxError> {
        match others.find(|(_, other)| other.request == "alone" || doc.request == "alone") {
            Some((id, _)) => Err(format!("{id} is there").into()),
            None => Ok(()),
        }
    }

    fn build(&self, id: &String, doc: &Steps) -> Result<ProbeTask, BoxError> {
        match doc.request.as_str() {
            "not to be built" => Err("not to be built".into()),
            "to panic" => panic!("built to panic"),
            _ => {
                let (id, request, began_with) = (id.clone(), doc.request.clone(), doc.taken);
                Ok(ProbeTask { id, request, began_with, probe: self.clone() })
            }
        }
    }
}

#[async_trait]
impl Task for ProbeTask {
    type Doc = Steps;

    async fn run(&self, cx: RunContext<Steps>) -> Result<(), BoxError> {
        let (id, journal) = (&self.id, &self.probe.journal);
        journal.write(format!("{id} runs"));
        let act = self.probe.acts.lock().unwrap().get(id).cloned();
        let result = match act {
            Some(act) => act(cx, self.probe.clone()).await,
            None => hold(cx).await,
        };
        journal.write(format!("{id} ends"));
        result
    }

    fn same_request(&self, doc: &Steps) -> bool {
        self.request == doc.request
    }

    fn report(&self) -> serde_json::Value {
        assert_ne!(self.request, "to panic when asked");
        serde_json::json!({ "began_with": self.began_with })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    given: Arc<Mutex<BTreeSet<String>>>,
    change: Change,
}

impl Signals {
    pub(crate) fn give(&self, signal: &str) {
        self.given.lock().unwrap().insert(signal.into());
        self.change.happened();
    }

    pub(crate) async fn wait(&self, signal: &str) {
        self.change.until(|| self.given.lock().unwrap().contains(signal)).await;
    }
}
