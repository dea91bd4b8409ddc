//! [`VvmConfig`]: the configuration of a VVM.

use ielections::{Env, Holder, Spawn};
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;

/// The configuration of one VVM.
#[derive(Clone, Debug)]
pub struct VvmConfig<K> {
    /// The slots; the VVM leads one of them. The reference has `[1, numVVM]`.
    pub slots: Vec<K>,
    /// The leader's name, for operators. The reference has `ip`.
    pub holder: Holder,
    /// How long one service may take to become ready. `None`, the default, means no limit, because a service
    /// may have a lot of state to read. A loss or a shutdown ends a start at any time.
    pub start_timeout: Option<Duration>,
    /// How long all services together may take to stop. After a loss, the kill deadline cuts it short.
    pub stop_timeout: Duration,
    /// The longest time between two looks at the slots while campaigning. `None` means the default of
    /// [`Terms::new`](ielections::Terms::new).
    pub poll: Option<Duration>,
    /// The clock of the elections, which measures the durations above.
    pub clock: Arc<dyn Clock>,
    /// Starts the tasks of the VVM and its services.
    pub spawn: Arc<dyn Spawn>,
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
            start_timeout: None,
            stop_timeout: Self::STOP_TIMEOUT,
            poll: None,
            clock: Arc::clone(&env.clock),
            spawn: Arc::clone(&env.spawn),
        }
    }
}
