//! [`Service`]: what runs only while leading.

use async_trait::async_trait;
use ielections::{Key, Standing};
use std::{error::Error, fmt, pin::Pin};
use tokio_util::sync::CancellationToken;

/// Whatever a service fails with.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A service at work. Ends when the service has stopped, with everything that it had started.
pub type Work = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// What a service gets to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceContext<K> {
    /// Cancelled when the service is to stop. Services stop in the reverse order of their start, each after
    /// the ones that were started later.
    pub stop: CancellationToken,
    /// The slot that is led.
    pub slot: K,
    /// Epoch (fencing token), time left, [`ensure`](Standing::ensure) before a critical step, and the fenced
    /// [`documents`](Standing::documents) of the slot.
    pub standing: Standing,
}

/// Something that runs only while this process leads `K`.
///
/// The VVM owns, drives and joins a service from the call of `start` until its work has ended. It is never
/// dropped half-way: it is told to stop, and waited for.
#[async_trait]
pub trait Service<K: Key>: Send + 'static {
    /// For people: logs, and the [`Problem`](crate::Problem) that speaks of this service.
    fn name(&self) -> &str;

    /// Gets ready, and returns the work to drive from then on. The next service starts after this one is
    /// ready.
    ///
    /// A start that is told to stop (`cx.stop`) may return either way; its work, if it returns some, is
    /// driven with the stop token already cancelled, so that what the start has begun can be ended there.
    ///
    /// # Errors
    /// Whatever keeps the service from starting. Returning it is the service's word that nothing of it runs;
    /// it shuts the VVM down, unless that was going on already.
    ///
    /// # Panics
    /// A panic, here or in the work, is caught and becomes [`Problem::Panicked`](crate::Problem).
    async fn start(self: Box<Self>, cx: ServiceContext<K>) -> Result<Work, BoxError>;
}

/// A service made of a function: ready at once, at work until the function's future ends.
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
