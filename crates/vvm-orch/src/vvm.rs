use crate::{
    NotLeading, Problem, Service, VvmLeadership,
    launcher::{Launcher, PlannedService},
    shutdowner::Shutdowner,
    state::VvmState,
};
use ielections::{
    AcquireTimeout, Candidacy, Elections, Env, Epoch, Holder, Incarnation, Key, Spawn, Terms, Ttl,
    successor::SuccessorTerms,
};
use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};
use vvm_clock::Clock;

/// A VVM before its launch.
///
/// A VVM can't be launched twice, nor shut down without a launch, which consumes it and makes a [`RunningVvm`].
///
/// ```no_run
/// # use {ielections::{Key, Ttl}, vvm_orch::{AcquireTimeout, Vvm}};
/// async fn once<K: Key>(vvm: Vvm<K>) {
///     let running = vvm.launch(Ttl::DEFAULT, AcquireTimeout::Forever);
///     let _ = running.shutdown().await;
/// }
/// ```
/// ```compile_fail,E0382
/// # use {ielections::{Key, Ttl}, vvm_orch::{AcquireTimeout, Vvm}};
/// async fn twice<K: Key>(vvm: Vvm<K>) {
///     let running = vvm.launch(Ttl::DEFAULT, AcquireTimeout::Forever);
///     let again = vvm.launch(Ttl::DEFAULT, AcquireTimeout::Forever);
///     let _ = running.shutdown().await;
/// }
/// ```
/// ```compile_fail,E0599
/// # use {ielections::{Key, Ttl}, vvm_orch::{AcquireTimeout, Vvm}};
/// async fn never_launched<K: Key>(vvm: Vvm<K>) {
///     let _ = vvm.shutdown().await;
/// }
/// ```
pub struct Vvm<K: Key> {
    config: VvmConfig<K>,
    elections: Arc<Elections<K>>,
    services: Vec<PlannedService<K>>,
}

impl<K: Key> Vvm<K> {
    /// Returns a VVM, and starts nothing.
    ///
    /// The shutdown closes the elections, which releases every leadership that was acquired through them. So
    /// each VVM needs elections of its own.
    ///
    /// # Panics
    /// If [`Service::name`] of a service panics.
    pub fn provide(
        config: VvmConfig<K>,
        elections: impl Into<Arc<Elections<K>>>,
        services: Vec<Box<dyn Service<K>>>,
    ) -> Self {
        Self {
            config,
            elections: elections.into(),
            services: services.into_iter().map(PlannedService::new).collect(),
        }
    }

    /// Starts the VVM, and returns at once. Its task campaigns, and starts the services. Call it where
    /// [`VvmConfig::spawn`] can start tasks.
    pub fn launch(self, ttl: Ttl, timeout: AcquireTimeout) -> RunningVvm<K> {
        let Self { config, elections, services } = self;
        let state = Arc::new(VvmState::new());
        let running = RunningVvm { state: Arc::clone(&state), elections: Arc::downgrade(&elections) };
        let left_behind = config.left_behind;
        let terms = Terms { timeout, left_behind, ..Terms::new(config.holder, ttl) };
        let launcher = Launcher {
            state: Arc::clone(&state),
            elections: Arc::clone(&elections),
            candidacy: Candidacy { slots: config.slots, terms },
            successor: config.successor,
            services,
            spawn: Arc::clone(&config.spawn),
        };
        let shutdowner =
            Shutdowner { state, elections, clock: config.clock, stop_timeout: config.stop_timeout };
        config.spawn.spawn("vvm", Box::pin(shutdowner.run(launcher)));
        running
    }
}

impl<K: Key> fmt::Debug for Vvm<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vvm").field("config", &self.config).field("services", &self.services).finish()
    }
}

/// The configuration of one VVM.
#[derive(Clone, Debug)]
pub struct VvmConfig<K> {
    /// The slots; the VVM leads one of them.
    pub slots: Vec<K>,
    /// The leader's name, for operators.
    pub holder: Holder,
    /// How long all services together may take to stop. After a loss, the kill deadline cuts it short.
    pub stop_timeout: Duration,
    /// The clock of the elections, which measures `stop_timeout`.
    pub clock: Arc<dyn Clock>,
    /// Starts the task of the VVM, and those of its services.
    pub spawn: Arc<dyn Spawn>,
    /// Records of earlier leaderships of this process that could not be released; see [`Terms::left_behind`].
    pub left_behind: Vec<(Incarnation, Epoch)>,
    /// How it takes part in succession, with one slot; `None` for not at all.
    pub successor: Option<SuccessorTerms<K>>,
}

impl<K> VvmConfig<K> {
    /// The default `stop_timeout`. Container runtimes wait ten seconds between SIGTERM and SIGKILL (`docker
    /// stop`); two of them remain to release the record.
    pub const STOP_TIMEOUT: Duration = Duration::from_secs(8);

    /// Returns the default configuration in the environment of the elections.
    pub fn new(slots: Vec<K>, holder: Holder, env: &Env) -> Self {
        Self {
            slots,
            holder,
            stop_timeout: Self::STOP_TIMEOUT,
            clock: Arc::clone(&env.clock),
            spawn: Arc::clone(&env.spawn),
            left_behind: Vec::new(),
            successor: None,
        }
    }
}

/// A launched VVM. Dropping it shuts the VVM down as [`shutdown`](Self::shutdown) does, but does not wait for it.
#[must_use = "dropping the handle shuts the VVM down"]
pub struct RunningVvm<K: Key> {
    state: Arc<VvmState<K>>,
    /// Weak, so that they end with the VVM even if a handle is kept (I9).
    elections: Weak<Elections<K>>,
}

impl<K: Key> RunningVvm<K> {
    /// Waits until the VVM leads and all its services are ready. Fails if it had a problem or was shut down, also after
    /// it has led. Cancel safe; several callers may wait at once.
    pub async fn leading(&self) -> Result<VvmLeadership<K>, NotLeading> {
        self.state.leading().await
    }

    /// Waits for the first problem (I8). Returns `None` if the VVM shuts down without one. After a problem the VVM
    /// shuts itself down, which [`shutdown`](Self::shutdown) awaits. Cancel safe; several callers may wait at once.
    pub async fn problem(&self) -> Option<Problem> {
        self.state.problem_or_done().await.cloned()
    }

    /// Returns the first problem so far.
    pub fn first_problem(&self) -> Option<Problem> {
        self.state.problem().cloned()
    }

    /// Returns the first problem so far that [leaves work](Problem::leaves_work), also if another one came before. If it is
    /// `None` after [`shutdown`](Self::shutdown), all services have stopped. Otherwise end this process.
    pub fn work_left(&self) -> Option<Problem> {
        self.state.work_left().cloned()
    }

    /// Makes a campaigning VVM look at its slots as soon as it may ([`Elections::look_now`]): a hint that the
    /// storage has changed. Does nothing in other states.
    pub fn look_now(&self) {
        if let Some(elections) = self.elections.upgrade() {
            elections.look_now();
        }
    }

    /// Shuts the VVM down, and waits for the end. In order: withdraw the campaign, stop the services in the
    /// reverse order of their start, release the record, close the elections.
    ///
    /// [`VvmConfig::stop_timeout`] limits the services' part. If a service does not stop in time, the others
    /// have until the kill deadline. The elections limit their own calls to the storage. Several
    /// calls, also at once, return the same result.
    ///
    /// # Errors
    /// The VVM's first problem, from its launch to the end of its shutdown. See [`work_left`](Self::work_left), too.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait, but not the shutdown.
    pub async fn shutdown(&self) -> Result<(), Problem> {
        self.state.stop();
        self.state.stopped().await;
        self.first_problem().map_or(Ok(()), Err)
    }
}

impl<K: Key> Drop for RunningVvm<K> {
    fn drop(&mut self) {
        self.state.stop();
    }
}

impl<K: Key> fmt::Debug for RunningVvm<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(out)
    }
}
