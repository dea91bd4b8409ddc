//! [`RegistryConfig`]: the environment of a registry.

use ielections::{Env, Spawn};
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;

/// The environment of a [`Registry`](crate::Registry).
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Times the pauses between read attempts, and `join_timeout`.
    pub clock: Arc<dyn Clock>,
    /// Starts the tasks that drive instances.
    pub spawn: Arc<dyn Spawn>,
    /// How long instances may take to end after their term.
    ///
    /// Instances that take longer are listed in the log. A term that begins meanwhile does not rebuild their
    /// service. Choose it longer than one step of a task.
    pub join_timeout: Duration,
}

impl RegistryConfig {
    /// The default `join_timeout`. It equals the default `stop_timeout` of a VVM, which waits no longer.
    pub const JOIN_TIMEOUT: Duration = Duration::from_secs(8);

    /// Returns the default configuration in the environment of the elections.
    pub fn new(env: &Env) -> Self {
        Self {
            clock: Arc::clone(&env.clock),
            spawn: Arc::clone(&env.spawn),
            join_timeout: Self::JOIN_TIMEOUT,
        }
    }
}
