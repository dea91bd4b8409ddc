//! `--storage URL`: the cost of elections on one storage, beside its bare statements.
//!
//! Each part has new slots in a cluster named after this run. Their rows stay behind, released.

mod bare;
mod beside_documents;
mod documents;
mod filling;
mod renewals;
mod verbs;

pub(crate) use renewals::LEADERS;

use crate::{
    report::Figure,
    setup::{Ignores, elections_on},
};
use bare::BareStatements;
use ielections::{
    AcquireError, Candidacy, Elections, Entry, Epoch, Holder, Incarnation, ReadError, ReleaseOutcome, Terms,
    Ttl, TtlStorage, Version, WriteError,
    documents::NotAnId,
    record::{EpochOutOfRange, HolderTooLong},
};
use std::{error::Error, io, num::NonZeroU32, sync::Arc};
use tokio::runtime::Runtime;
use vvm_clock::{Clock, SystemClock};
use vvm_deadman::Deadman;
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, OpenError, SettleError, SlotNumber};

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    #[error("no folder, clock or runtime: {0}")]
    System(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the bare statements could not be made: {0}")]
    Bare(#[from] Box<dyn Error + Send + Sync>),
    #[error("a slot without another candidate was not acquired: {0}")]
    Acquire(#[from] AcquireError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("a record was not released: {0}")]
    Release(ReleaseOutcome),
    #[error("a write without a competitor was refused")]
    Refused,
    #[error("this storage keeps no documents")]
    NoDocuments,
    #[error(transparent)]
    Id(#[from] NotAnId),
    #[error(transparent)]
    Epoch(#[from] EpochOutOfRange),
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
}

/// Measures all parts: the verbs, many renewals at once, many candidates at once.
pub(crate) fn measure(url: &str, quick: bool) -> Result<Vec<Figure>, StorageError> {
    let runtime = runtime()?;
    runtime.block_on(async {
        vvm_storage::init_storage(url).await?;
        let scene = Scene::open(url).await?;
        let mut bare = bare::open(url).await?;
        let mut figures = verbs::measure(&scene, &mut *bare, rounds(quick)).await?;
        figures.extend(renewals::measure(&scene, &mut *bare, quick).await?);
        figures.extend(filling::measure(&scene, quick).await?);
        figures.extend(beside_documents::measure(&scene, quick).await?);
        scene.storage.close().await;
        Ok(figures)
    })
}

/// Measures documents alone.
pub(crate) fn measure_documents(url: &str, quick: bool) -> Result<Vec<Figure>, StorageError> {
    runtime()?.block_on(async {
        vvm_storage::init_storage(url).await?;
        let scene = Scene::open(url).await?;
        let figures = documents::measure(&scene, quick).await?;
        scene.storage.close().await;
        Ok(figures)
    })
}

/// Measures the verbs alone, on a SQLite file in a temporary folder.
pub(crate) fn measure_sqlite_verbs(quick: bool) -> Result<Vec<Figure>, StorageError> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}?allow=overlay", folder.path().join("ours.db").display());
    runtime()?.block_on(async {
        let scene = Scene::open(&url).await?;
        let figures = verbs::measure(&scene, &mut *bare::open(&url).await?, rounds(quick)).await?;
        scene.storage.close().await;
        Ok(figures)
    })
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn rounds(quick: bool) -> u32 {
    if quick { 20 } else { 400 }
}

/// A storage, and a cluster in it.
#[derive(Clone)]
struct Scene {
    scheme: String,
    clock: Arc<dyn Clock>,
    storage: Arc<ElectionsTtlStorage>,
    cluster: ClusterName,
    holder: Holder,
}

impl Scene {
    async fn open(url: &str) -> Result<Self, StorageError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = vvm_storage::open(url, Arc::clone(&clock)).await?;
        let run = format!("bench-{}-{}", std::process::id(), clock.now().as_nanos());
        Ok(Self {
            scheme: url.split(':').next().unwrap_or_default().to_owned(),
            clock,
            storage: Arc::new(ElectionsTtlStorage::new(storage)),
            cluster: ClusterName::from(run.as_str()),
            holder: Holder::new("10.0.0.7")?,
        })
    }

    /// The same with a cluster of so many slots, as `vvm run` settles it.
    async fn settled(&self, slots: u32) -> Result<Self, StorageError> {
        let cluster = ClusterName::from(format!("{}-settled", self.cluster).as_str());
        let count = NonZeroU32::MIN.saturating_add(slots.saturating_sub(1));
        self.storage.settle_slot_count(&cluster, count).await?;
        Ok(Self { cluster, ..self.clone() })
    }

    /// Elections as of a process of their own, except that all share one connection.
    fn elections(&self) -> Arc<Elections<ElectionKey>> {
        let deadman = Deadman::with_trigger(Arc::new(Ignores));
        let runtime = tokio::runtime::Handle::current();
        elections_on(Arc::clone(&self.storage), Arc::clone(&self.clock), deadman, runtime)
    }

    fn key(&self, slot: u32) -> ElectionKey {
        let slot = SlotNumber::new(NonZeroU32::MIN.saturating_add(slot));
        ElectionKey { cluster: self.cluster.clone(), slot }
    }

    fn candidacy(&self, slots: impl IntoIterator<Item = u32>) -> Candidacy<ElectionKey> {
        let slots = slots.into_iter().map(|slot| self.key(slot)).collect();
        Candidacy { slots, terms: Terms::new(self.holder.clone(), Ttl::DEFAULT) }
    }

    /// The entry of a first claim.
    fn entry(&self) -> Result<Entry, StorageError> {
        let version = Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 };
        Ok(Entry { holder: self.holder.clone(), version, ttl: Ttl::DEFAULT, epoch: Epoch::new(1)? })
    }
}
