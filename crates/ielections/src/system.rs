//! The environment of a real process: operating-system randomness, and a tokio runtime that drives the engine.

use crate::{Entropy, Spawn, env::Task};

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    /// # Panics
    /// When the operating system has no randomness to give (no `getrandom(2)`, no `/dev/urandom`): an incarnation that
    /// might repeat must never be used.
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            panic!("the operating system gives no randomness: {error}");
        }
    }
}

/// Drives tasks on a tokio runtime.
#[derive(Clone, Debug)]
pub struct TokioSpawn(tokio::runtime::Handle);

impl TokioSpawn {
    /// On `runtime`.
    pub fn on(runtime: tokio::runtime::Handle) -> Self {
        Self(runtime)
    }
}

impl Spawn for TokioSpawn {
    fn spawn(&self, _name: &'static str, task: Task) {
        // The engine joins its task: it ends when its last handle and lease are gone, and `cleanup` waits for that.
        drop(self.0.spawn(task));
    }
}
