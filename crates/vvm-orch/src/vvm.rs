//! [`Vvm`]: services and slots, launched once.

use crate::{
    Acquisition, RunningVvm, Service, VvmConfig, hosted::Planned, launcher::Launcher, shutdowner::Shutdowner,
    state::State, task::Joined,
};
use ielections::{Candidacy, Elections, Key, Terms, Timing, Ttl};
use std::{fmt, sync::Arc};

/// A VVM before its launch.
///
/// The reference panics if a VVM is launched twice, or shut down without a launch. Neither compiles here,
/// because launching consumes the VVM, and only a [`RunningVvm`] has `shutdown`.
///
/// ```no_run
/// # use {ielections::{Key, Ttl}, vvm_orch::{Acquisition, Vvm}};
/// async fn once<K: Key>(vvm: Vvm<K>) {
///     let running = vvm.launch(Ttl::DEFAULT, Acquisition::DEFAULT);
///     let _ = running.shutdown().await;
/// }
/// ```
/// ```compile_fail,E0382
/// # use {ielections::{Key, Ttl}, vvm_orch::{Acquisition, Vvm}};
/// async fn twice<K: Key>(vvm: Vvm<K>) {
///     let running = vvm.launch(Ttl::DEFAULT, Acquisition::DEFAULT);
///     let again = vvm.launch(Ttl::DEFAULT, Acquisition::DEFAULT);
///     let _ = running.shutdown().await;
/// }
/// ```
/// ```compile_fail,E0599
/// # use {ielections::{Key, Ttl}, vvm_orch::{Acquisition, Vvm}};
/// async fn never_launched<K: Key>(vvm: Vvm<K>) {
///     let _ = vvm.shutdown().await;
/// }
/// ```
pub struct Vvm<K: Key> {
    config: VvmConfig<K>,
    elections: Arc<Elections<K>>,
    services: Vec<Planned<K>>,
}

impl<K: Key> Vvm<K> {
    /// Returns a VVM, and starts nothing.
    ///
    /// The shutdown closes the elections, which releases every leadership that was acquired through them. So
    /// each VVM needs elections of its own.
    pub fn provide(
        config: VvmConfig<K>,
        elections: impl Into<Arc<Elections<K>>>,
        services: Vec<Box<dyn Service<K>>>,
    ) -> Self {
        // This calls `Service::name`, so that its panic reaches the caller.
        Self {
            config,
            elections: elections.into(),
            services: services.into_iter().map(Planned::new).collect(),
        }
    }

    /// Starts the VVM, and returns at once. Its tasks campaign, and start the services.
    pub fn launch(self, ttl: Ttl, acquisition: Acquisition) -> RunningVvm<K> {
        let Self { config, elections, services } = self;
        let state = Arc::new(State::new());
        let running = RunningVvm::new(Arc::clone(&state), Arc::downgrade(&elections));
        let default = Terms::new(config.holder, ttl);
        let terms =
            Terms { timeout: acquisition.timeout(), poll: config.poll.unwrap_or(default.poll), ..default };
        let launcher = Launcher {
            state: Arc::clone(&state),
            elections: Arc::clone(&elections),
            candidacy: Candidacy { slots: config.slots, terms },
            services,
            spawn: Arc::clone(&config.spawn),
            clock: Arc::clone(&config.clock),
            start_timeout: config.start_timeout,
        };
        let launched = Joined::spawn(&*config.spawn, Launcher::<K>::NAME, launcher.run());
        let shutdowner = Shutdowner {
            state,
            launched,
            elections,
            clock: config.clock,
            stop_timeout: config.stop_timeout,
            timing: Timing::of(ttl),
        };
        config.spawn.spawn(Shutdowner::<K>::NAME, Box::pin(shutdowner.run()));
        running
    }
}

impl<K: Key> fmt::Debug for Vvm<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vvm").field("config", &self.config).field("services", &self.services).finish()
    }
}
