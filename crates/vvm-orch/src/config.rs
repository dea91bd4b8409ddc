//! What a VVM is told beside its elections and services.

use ielections::{Env, Holder, Spawn};
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;

/// The configuration of one VVM.
#[derive(Clone, Debug)]
pub struct VvmConfig<K> {
    /// Any one of these is led. The reference's `[1, numVVM]`.
    pub slots: Vec<K>,
    /// Who leads, for people. The reference's `ip`.
    pub holder: Holder,
    /// How long one service may take to become ready; `None`, the default, for as long as it takes, since a
    /// service may have a night's work to read back. A loss or a shutdown ends a start at any time, with or
    /// without this.
    pub start_timeout: Option<Duration>,
    /// How long all services together may take to stop. After a loss, the kill deadline cuts it short.
    pub stop_timeout: Duration,
    /// The longest time between two looks at the slots while campaigning; `None` for what
    /// [`Terms::new`](ielections::Terms::new) chooses.
    pub poll: Option<Duration>,
    /// The clock that these are counted on: the elections' own.
    pub clock: Arc<dyn Clock>,
    /// Drives the VVM's tasks and its services.
    pub spawn: Arc<dyn Spawn>,
}

impl<K> VvmConfig<K> {
    /// The default of [`VvmConfig::stop_timeout`]: two seconds less than the ten that container runtimes give
    /// between their TERM and their KILL (`docker stop`), so that the record is still handed back.
    pub const STOP_TIMEOUT: Duration = Duration::from_secs(8);

    /// The usual configuration, in the environment that the elections run in.
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
