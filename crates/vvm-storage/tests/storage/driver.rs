//! Both programs of tests include this file, and each needs a part of it.
#![allow(unused, reason = "no program needs all of it")]

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ielections::{
    DocumentVersion, Entry, Fence, Holder, ReadError, Slot, Ttl, TtlStorage, Vacant, WriteError,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use testing_time::MockClock;
use vvm_clock::SystemClock;
use vvm_storage::{
    ClusterName, Description, ElectionKey, ElectionsTtlStorage, OpenError, OpenErrorKind, Partition,
    SlotNumber, Step, StepOutcome, SysVvmStorage, init_storage, testing::compare_steps,
};

type Open = dyn Fn() -> BoxFuture<'static, Arc<dyn SysVvmStorage>> + Send + Sync;

/// Cases have names of their own, so that they can share one database.
pub(crate) struct Driver {
    open: Box<Open>,
    names: String,
    ttl: Ttl,
    clock: Option<MockClock>,
    folder: Option<TempDir>,
}

impl Driver {
    pub(crate) fn new(open: impl Fn() -> Arc<dyn SysVvmStorage> + Send + Sync + 'static) -> Self {
        let open = Box::new(move || {
            let opened = open();
            Box::pin(async { opened }) as BoxFuture<'static, _>
        });
        Self { open, names: String::new(), ttl: Ttl::DEFAULT, clock: None, folder: None }
    }

    /// On a storage that waits for nothing but this clock.
    pub(crate) fn in_time_of(self, clock: MockClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    pub(crate) fn at(url: String) -> Self {
        let open = Box::new(move || {
            let url = url.clone();
            Box::pin(async move { opened(&url).await.unwrap() }) as BoxFuture<'static, _>
        });
        Self { open, names: fresh("case").replace('_', "-"), ttl: Ttl::DEFAULT, clock: None, folder: None }
    }

    pub(crate) fn with_ttl(self, seconds: u64) -> Self {
        Self { ttl: Ttl::new(Duration::from_secs(seconds)).unwrap(), ..self }
    }

    /// In a folder of its own, in which `url` names a storage. The machine may stop for a third of the TTL under load.
    pub(crate) fn in_a_folder(url: impl Fn(&Path) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let driver = Self::at(url(folder.path())).with_ttl(2);
        Self { folder: Some(folder), ..driver }
    }

    /// A server shares the machine with the tests: a write may take half a second, less than a tenth of the TTL.
    pub(crate) const TTL_ON_A_SERVER: u64 = 6;

    pub(crate) async fn on_a_server(url: String) -> Self {
        init_storage(&url).await.unwrap();
        Self::at(url).with_ttl(Self::TTL_ON_A_SERVER)
    }
}

impl Driver {
    pub(crate) async fn compare_steps(&self, lists: u64) {
        for seed in 0..lists {
            let names = format!("{}-{seed}", self.names);
            compare_steps(async || (self.open)().await, &names, seed, 60).await;
        }
    }
}

pub(crate) async fn opened(url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    vvm_storage::open(url, Arc::new(SystemClock::start().unwrap())).await
}

#[async_trait]
impl StorageUnderTest for Driver {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new((self.open)().await))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        let cluster = ClusterName::new([self.names.as_bytes(), name].concat());
        ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Driver {
    fn ttl(&self) -> Ttl {
        self.ttl
    }

    fn mock_clock(&self) -> Option<MockClock> {
        self.clock.clone()
    }
}

macro_rules! driver_suites {
    ($driver:expr, $lists:expr) => {
        ielections::all_suites!($driver);

        #[tokio::test(flavor = "multi_thread")]
        async fn random_steps_do_what_decide_says() {
            $driver.compare_steps($lists).await;
        }
    };
}

macro_rules! all_suites_on_a_server {
    ($driver:expr) => {
        mod suites {
            use super::*;

            crate::driver::driver_suites!($driver, 5);
        }
    };
}

pub(crate) use {all_suites_on_a_server, driver_suites};

pub(crate) fn fresh(name: &str) -> String {
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    format!("vvm_test_{name}_{}", bytes.map(|byte| format!("{byte:02x}")).concat())
}

/// Creates a storage by several processes at once, and again.
pub(crate) async fn many_create(url: &str) {
    let mut creators = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.to_owned();
        creators.spawn(async move { init_storage(&url).await });
    }
    for created in creators.join_all().await {
        created.unwrap();
    }
    init_storage(url).await.unwrap();
    opened(url).await.unwrap().close().await;
}

/// On a storage that this creates. Closed, it says nothing.
pub(crate) async fn described(url: &str) -> Description {
    init_storage(url).await.unwrap();
    let storage = opened(url).await.unwrap();
    let described = storage.describe().await.unwrap();
    println!("{described:#?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
    described
}

/// `own` was opened with a client of the test.
pub(crate) async fn is_the_storage_at(url: &str, own: Arc<dyn SysVvmStorage>) {
    let (at, held) = (slot_of(&fresh("own")), entry(1, 1, TTL));
    assert_eq!(own.commit(at.clone(), Step::claim(&VACANT, &held)).await.unwrap(), StepOutcome::Applied);
    assert_eq!(renewed(&*own, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
    let refused = renewed(&*own, &at, &held, 3).await.unwrap();
    assert!(matches!(refused, StepOutcome::Refused(_)), "{refused:?}");
    let by_url = opened(url).await.unwrap();
    let shown = by_url.read(at).await.unwrap();
    assert_eq!(shown.entry().unwrap().version.write, 2);
    own.close().await;
    by_url.close().await;
}

pub(crate) const TTL: Duration = Duration::from_secs(2);

pub(crate) const VACANT: Slot = Slot::Vacant(Vacant { last_epoch: None });

pub(crate) fn entry(epoch: u64, write: u64, ttl: Duration) -> Entry {
    let holder = Holder::new("host").unwrap();
    Entry { holder, ttl: Ttl::new(ttl).unwrap(), ..ielections::testing::entry(7, write, epoch) }
}

/// A slot whose key begins as those of leader records do.
pub(crate) fn slot_of(name: &str) -> Partition {
    Partition::from_bytes([&[1], name.as_bytes()].concat())
}

pub(crate) async fn led(storage: &dyn SysVvmStorage, ttl: Duration) -> (Partition, Entry) {
    let (at, held) = (slot_of("slot"), entry(1, 1, ttl));
    assert_eq!(storage.commit(at.clone(), Step::claim(&VACANT, &held)).await.unwrap(), StepOutcome::Applied);
    (at, held)
}

pub(crate) async fn renewed(
    storage: &dyn SysVvmStorage,
    at: &Partition,
    held: &Entry,
    write: u64,
) -> Result<StepOutcome, WriteError> {
    let mut next = held.clone();
    next.version.write = write;
    storage.commit(at.clone(), Step::renew(held, &next)).await
}

/// `plain` has no bound of TTLs, and `raised` one above 30 s.
pub(crate) async fn ttl_is_refused_until_the_bound_is_raised(plain: &str, raised: &str) {
    let claimed = async || {
        let long = entry(1, 1, Duration::from_secs(30));
        opened(plain).await.unwrap().commit(slot_of("slot"), Step::claim(&VACANT, &long)).await
    };
    init_storage(plain).await.unwrap();
    let claim = claimed().await;
    let Err(WriteError::Fatal(cause)) = claim else { panic!("{claim:?}") };
    assert!(cause.to_string().contains("30s") && cause.to_string().contains("max_ttl=30s"), "{cause}");
    init_storage(raised).await.unwrap();
    assert_eq!(claimed().await.unwrap(), StepOutcome::Applied);
}

pub(crate) async fn storage_that_is_dropped_is_replaced(url: &str, drops: impl AsyncFnOnce()) {
    init_storage(url).await.unwrap();
    let storage = opened(url).await.unwrap();
    let (at, held) = led(&*storage, TTL).await;
    drops().await;
    for _ in 0..2 {
        let renewal = renewed(&*storage, &at, &held, 2).await;
        assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
        init_storage(url).await.unwrap();
    }
}

/// `ages` sets the times of all records to an hour ago.
pub(crate) async fn age_is_that_of_the_last_write(storage: &dyn SysVvmStorage, ages: impl AsyncFnOnce()) {
    let (at, held) = led(storage, TTL).await;
    let at = [at, slot_of("vacant")];
    let shown = async || storage.shown_ages(&at).await.unwrap();
    assert!(matches!(shown().await[..], [Some(_), None]), "{:?}", shown().await);
    ages().await;
    let hour = Duration::from_secs(3600);
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    storage.commit(at[0].clone(), Step::batch(&fence, &[])).await.unwrap();
    assert!(shown().await[0].unwrap() >= hour);
    assert_eq!(renewed(storage, &at[0], &held, 2).await.unwrap(), StepOutcome::Applied);
    assert!(shown().await[0].unwrap() < hour);
}

pub(crate) async fn login_can_look_but_not_claim(url: &str) {
    let error = opened(url).await.expect_err("opened to lead");
    let says = error.to_string();
    assert!(
        error.kind() == OpenErrorKind::Refused && says.contains("lacks a right") && says.contains("GRANT"),
        "{says}"
    );
    let clock = Arc::new(SystemClock::start().unwrap());
    let storage = vvm_storage::url::open_read_only(url, clock).await.unwrap();
    assert_eq!(storage.peek(&[slot_of("slot")]).await.unwrap(), [VACANT]);
    let claim = storage.commit(slot_of("slot"), Step::claim(&VACANT, &entry(1, 1, TTL))).await;
    assert!(
        matches!(&claim, Err(WriteError::NotApplied(cause)) if cause.to_string().contains("grants")),
        "{claim:?}"
    );
}
