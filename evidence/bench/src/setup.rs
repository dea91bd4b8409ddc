//! The set-up of measurements on `mem`: a runtime of one thread, the system's clock, and elections through
//! the public API.

use ielections::{
    AcquireError, Candidacy, Elections, Env, Holder, Leadership, OsEntropy, Terms, TokioSpawn, Ttl,
    record::HolderTooLong,
};
use std::{io, num::NonZeroU32, sync::Arc};
use tokio::runtime::{Handle, Runtime};
use vvm_clock::{Clock, Instant, SystemClock, SystemWallClock};
use vvm_deadman::{ArmError, Deadman, Subject, SystemOptions, Trigger};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

/// The deadman's trigger during a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deadline {
    /// No trigger: deadlines are ordered and have no effect.
    Ignored,
    /// That of production: a thread and a kernel timer. At most one setup of a process can have it.
    System,
}

/// Elections on `mem`, and the cluster that they are for.
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) storage: Arc<ElectionsTtlStorage>,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    cluster: ClusterName,
    pub(crate) holder: Holder,
}

/// The set-up failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("the runtime or the clock could not be started: {0}")]
    System(#[from] io::Error),
    #[error(transparent)]
    Deadman(#[from] ArmError),
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
}

impl Setup {
    pub(crate) fn make(deadline: Deadline) -> Result<Self, SetupError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&clock)).open()));
        let deadman = match deadline {
            Deadline::Ignored => Deadman::with_trigger(Arc::new(Ignores)),
            Deadline::System => Deadman::system(SystemOptions::default())?,
        };
        let elections =
            elections_on(Arc::clone(&storage), Arc::clone(&clock), deadman, runtime.handle().clone());
        let (cluster, holder) = (ClusterName::from("bench"), Holder::new("bench")?);
        Ok(Self { runtime, clock, storage, elections, cluster, holder })
    }

    pub(crate) fn key(&self, slot: NonZeroU32) -> ElectionKey {
        ElectionKey { cluster: self.cluster.clone(), slot: SlotNumber::new(slot) }
    }

    pub(crate) async fn acquire(&self, slot: NonZeroU32, ttl: Ttl) -> Result<Leadership, AcquireError> {
        let terms = Terms::new(self.holder.clone(), ttl);
        let candidacy = Candidacy { slots: vec![self.key(slot)], terms };
        self.elections.acquire(candidacy).await.map(|(_, leadership)| leadership)
    }
}

/// Elections in this process.
pub(crate) fn elections_on(
    storage: Arc<ElectionsTtlStorage>,
    clock: Arc<dyn Clock>,
    deadman: Deadman,
    runtime: Handle,
) -> Arc<Elections<ElectionKey>> {
    let env = Env {
        clock,
        wall: Arc::new(SystemWallClock),
        deadman,
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::new(TokioSpawn::on(runtime)),
    };
    Arc::new(Elections::new(storage, env))
}

/// Does nothing at any deadline.
#[derive(Debug)]
pub(crate) struct Ignores;

impl Trigger for Ignores {
    fn set_earliest(&self, _earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        Ok(())
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}
