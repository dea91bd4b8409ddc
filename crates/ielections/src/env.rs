//! [`Env`]: time, deadman, randomness and spawning, which a simulation replaces.

#[cfg(feature = "tokio-rt")]
pub use this_process::{EnvError, OsEntropy, TokioSpawn};

use futures_util::FutureExt as _;
use std::{any::Any, fmt::Debug, panic::AssertUnwindSafe, pin::Pin, sync::Arc};
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

/// Returns the message of a panic that was caught.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("the payload is not text")
}

/// Drives `work`, and turns a panic into its message.
///
/// # Errors
/// The message, if it panics.
///
/// # Cancel safety
/// That of `work`.
#[expect(
    clippy::redundant_async_block,
    reason = "it drops `work` within, so that a panic of a destructor is caught, too"
)]
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Arc<str>> {
    // Unwind safe: after a panic, nothing reads the state that it left.
    let ended = AssertUnwindSafe(async move { work.await }).catch_unwind().await;
    ended.map_err(|payload| panic_message(&*payload).into())
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

/// The environment of a real process: the randomness of the operating system and a tokio runtime.
#[cfg(feature = "tokio-rt")]
mod this_process {
    use super::{Entropy, Env, Spawn, Task};
    use std::{io, sync::Arc};
    use vvm_clock::{SystemClock, SystemWallClock};
    use vvm_deadman::{ArmError, Deadman};

    impl Env {
        /// The environment of this process: the machine's clocks, the operating system's randomness, tasks on the
        /// current tokio runtime, and a deadman that ends the process ([`Deadman::system`]). Once in each process.
        ///
        /// # Errors
        /// [`EnvError`], for example outside a tokio runtime.
        pub fn this_process() -> Result<Self, EnvError> {
            let runtime = tokio::runtime::Handle::try_current().map_err(EnvError::NoRuntime)?;
            let deadman = Deadman::system().map_err(EnvError::Deadman)?;
            Self::with_deadman(deadman, runtime).map_err(EnvError::Clock)
        }

        /// [`Env::this_process`], for a process that chooses its deadman and its runtime.
        ///
        /// # Errors
        /// As [`SystemClock::start`].
        pub fn with_deadman(deadman: Deadman, runtime: tokio::runtime::Handle) -> io::Result<Self> {
            Ok(Self {
                clock: Arc::new(SystemClock::start()?),
                wall: Arc::new(SystemWallClock),
                deadman,
                entropy: Arc::new(OsEntropy::default()),
                spawn: Arc::new(TokioSpawn::on(runtime)),
            })
        }
    }

    /// The environment could not be made.
    #[derive(Debug, thiserror::Error)]
    pub enum EnvError {
        /// The call was not made on a tokio runtime.
        #[error("elections need a tokio runtime: {0}")]
        NoRuntime(#[source] tokio::runtime::TryCurrentError),
        /// The deadman's thread or timer could not be started.
        #[error(transparent)]
        Deadman(ArmError),
        /// The clock's thread or timer could not be started.
        #[error("the clock could not be started: {0}")]
        Clock(#[source] io::Error),
    }

    /// The randomness of the operating system. Nothing is drawn in advance: two copies of a process, as of a virtual
    /// machine whose snapshot is resumed twice, would draw the same.
    #[derive(Debug, Default)]
    pub struct OsEntropy(());

    impl Entropy for OsEntropy {
        /// Panics without randomness (no `getrandom(2)`, no `/dev/urandom`): an incarnation must not repeat.
        fn fill(&self, bytes: &mut [u8]) {
            if let Err(error) = getrandom::fill(bytes) {
                panic!("the operating system gives no randomness: {error}");
            }
        }
    }

    /// Runs tasks on a tokio runtime.
    #[derive(Clone, Debug)]
    pub struct TokioSpawn(tokio::runtime::Handle);

    impl TokioSpawn {
        /// On `runtime`.
        pub fn on(runtime: tokio::runtime::Handle) -> Self {
            Self(runtime)
        }
    }

    impl Spawn for TokioSpawn {
        #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
        fn spawn(&self, _name: &'static str, task: Task) {
            // Not detached: the task ends with its last handle and lease, and `cleanup` waits for that.
            drop(self.0.spawn(task));
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn environment_outside_a_runtime_is_refused() {
            assert!(matches!(Env::this_process(), Err(EnvError::NoRuntime(_))));
        }
    }
}
