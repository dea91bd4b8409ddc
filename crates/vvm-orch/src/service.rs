use async_trait::async_trait;
use ielections::{Key, Standing};
use std::{error::Error, fmt, pin::Pin};
use tokio_util::sync::CancellationToken;

/// An error of a service.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The work of a service. It ends only after everything that the service has started.
pub type Work = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// The arguments of [`Service::start`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceContext<K> {
    /// Cancelled to stop the service. Services stop one after the other, in the reverse order of their start.
    pub stop: CancellationToken,
    /// The slot.
    pub slot: K,
    /// The leadership: its epoch (the fencing token), time left, [`ensure`](Standing::ensure) for a critical
    /// step, and the slot's fenced [`documents`](Standing::documents).
    pub standing: Standing,
}

/// Work that runs only while this process leads `K`.
///
/// The VVM drives a service from the call of `start` until its work has ended. It never drops a service
/// half-way: it cancels `cx.stop`, and waits.
///
/// Let `tokio::task::spawn_blocking` do what blocks, and wait for it. A service that blocks its thread sees no stop and
/// may keep the engine, a task of this runtime, from renewing. Then the deadman, a thread of its own, ends the process.
/// A child process lives on then: start it by `vvm-containment`, give it a parent-death signal, or use `vvm run`.
#[async_trait]
pub trait Service<K: Key>: Send + 'static {
    /// Returns the service's name, for logs and [`Problem`](crate::Problem)s.
    fn name(&self) -> &str;

    /// Prepares the service, and returns its work. The next service starts after this returns.
    ///
    /// After `cx.stop` is cancelled, it may return an error or the work, which the VVM drives to end what was begun.
    ///
    /// # Errors
    /// Why the service can't start. Nothing of it may run then. The error shuts the VVM down.
    ///
    /// # Panics
    /// A panic here or in the work is caught, and becomes [`Problem::Panicked`](crate::Problem).
    async fn start(self: Box<Self>, cx: ServiceContext<K>) -> Result<Work, BoxError>;
}

/// Returns a service that is ready at once, and whose work is the function's future. It must not [block](Service).
pub fn service_fn<K, Run, Running>(name: impl Into<String>, run: Run) -> Box<dyn Service<K>>
where
    K: Key,
    Run: FnOnce(ServiceContext<K>) -> Running + Send + 'static,
    Running: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    Box::new(ServiceFn { name: name.into(), run })
}

struct ServiceFn<Run> {
    name: String,
    run: Run,
}

#[async_trait]
impl<K, Run, Running> Service<K> for ServiceFn<Run>
where
    K: Key,
    Run: FnOnce(ServiceContext<K>) -> Running + Send + 'static,
    Running: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    async fn start(self: Box<Self>, cx: ServiceContext<K>) -> Result<Work, BoxError> {
        Ok(Box::pin((self.run)(cx)))
    }
}

impl<K: Key> fmt::Debug for dyn Service<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
