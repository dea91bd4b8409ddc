//! [`Vvm`]: provided, and launched once.

use crate::{
    Acquisition, RunningVvm, Service, VvmConfig, hosted::Planned, launcher::Launcher, shutdowner::Shutdowner,
    state::State, task::Joined,
};
use ielections::{Candidacy, Elections, Key, Terms, Timing, Ttl};
use std::{fmt, sync::Arc};

/// A VVM that was provided and runs nothing yet.
///
/// Launching consumes it, and only a [`RunningVvm`] can be shut down, so that what the reference panics at
/// doesn't compile: launching twice, and shutting down what was never launched.
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
    /// Puts a VVM together. Launches nothing.
    ///
    /// The VVM closes its elections when it shuts down, which hands back every leadership that was acquired
    /// through them: give each VVM elections of its own.
    pub fn provide(
        config: VvmConfig<K>,
        elections: impl Into<Arc<Elections<K>>>,
        services: Vec<Box<dyn Service<K>>>,
    ) -> Self {
        // Names are asked for here: a panicking `name` is then the caller's.
        Self {
            config,
            elections: elections.into(),
            services: services.into_iter().map(Planned::new).collect(),
        }
    }

    /// Launches the VVM, and returns at once: it campaigns, then starts its services, on tasks of its own.
    pub fn launch(self, ttl: Ttl, acquisition: Acquisition) -> RunningVvm<K> {
        let Self { config, elections, services } = self;
        let state = Arc::new(State::new());
        let running = RunningVvm::new(Arc::clone(&state), Arc::downgrade(&elections));
        let usual = Terms::new(config.holder, ttl);
        let terms =
            Terms { timeout: acquisition.timeout(), poll: config.poll.unwrap_or(usual.poll), ..usual };
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
