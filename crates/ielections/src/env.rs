//! [`Env`]: time, deadman, randomness and spawning, which a simulation replaces.

#[cfg(feature = "tokio-rt")]
pub use crate::system::{EnvError, OsEntropy, TokioSpawn};

use std::{fmt::Debug, pin::Pin, sync::Arc};
use vvm_clock::{Clock, WallClock};
use vvm_deadman::Deadman;

/// A task of the engine.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of random bytes.
pub trait Entropy: Debug + Send + Sync + 'static {
    /// Fills `bytes`. Incarnations are made of them: bytes that repeat between processes break I7.
    fn fill(&self, bytes: &mut [u8]);

    /// 64 random bits.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Runs tasks: an async runtime, or a test that counts them (I9) and drops them to simulate a crash.
pub trait Spawn: Debug + Send + Sync + 'static {
    /// Starts `task`. `name` is for people.
    fn spawn(&self, name: &'static str, task: Task);
}

/// The environment of elections.
#[derive(Clone, Debug)]
pub struct Env {
    /// Monotonic time that counts suspend.
    pub clock: Arc<dyn Clock>,
    /// Wall time, used only to keep epochs rising.
    pub wall: Arc<dyn WallClock>,
    /// Ends the process at a deadline.
    pub deadman: Deadman,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Runs the engine.
    pub spawn: Arc<dyn Spawn>,
}
