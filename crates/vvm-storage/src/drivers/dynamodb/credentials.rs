//! Credentials whose loading outlives the request that began it.
//!
//! The SDK loads credentials within a request, and the request's time-out cancels the loading. A credential
//! helper that takes longer than a request would be started again and again, and its answer never used.

use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, ready},
};
use std::sync::{Arc, Mutex, PoisonError};

type Loading = Shared<BoxFuture<'static, Result<Credentials, Arc<CredentialsError>>>>;

/// A provider that continues a loading after the request that began it gave up.
#[derive(Debug)]
pub(super) struct LoadedOnce {
    provider: SharedCredentialsProvider,
    loading: Mutex<Option<Loading>>,
}

impl LoadedOnce {
    /// A provider whose first request gets `loaded`.
    pub(super) fn new(provider: SharedCredentialsProvider, loaded: Credentials) -> Self {
        let loading = ready(Ok(loaded)).boxed().shared();
        Self { provider, loading: Mutex::new(Some(loading)) }
    }

    fn begin_or_join(&self) -> Loading {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = || {
            let provider = self.provider.clone();
            async move { provider.provide_credentials().await.map_err(Arc::new) }.boxed().shared()
        };
        loading.get_or_insert_with(begin).clone()
    }

    fn end(&self, ended: &Loading) {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        loading.take_if(|loading| loading.ptr_eq(ended));
    }
}

impl ProvideCredentials for LoadedOnce {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let loading = self.begin_or_join();
            let loaded = loading.clone().await;
            self.end(&loading);
            loaded.map_err(CredentialsError::provider_error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Semaphore;

    fn helper_answer(number: u32) -> Credentials {
        Credentials::new(number.to_string(), "secret", None, None, "helper")
    }

    /// A provider whose loadings each wait for a permit.
    #[derive(Debug)]
    struct Helper {
        begun: Arc<AtomicU32>,
        may_end: Arc<Semaphore>,
    }

    impl ProvideCredentials for Helper {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            future::ProvideCredentials::new(async move {
                let ended = self.may_end.acquire().await;
                ended.map_err(CredentialsError::provider_error)?.forget();
                Ok(helper_answer(number))
            })
        }
    }

    #[tokio::test]
    async fn loading_of_a_request_that_gave_up_serves_the_next_request() {
        let (begun, may_end) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let helper = Helper { begun: Arc::clone(&begun), may_end: Arc::clone(&may_end) };
        let loaded = helper_answer(0);
        let provider = LoadedOnce::new(SharedCredentialsProvider::new(helper), loaded);
        let first = provider.provide_credentials().await.unwrap();
        assert_eq!(first.access_key_id(), "0", "the helper was started again");
        assert!(provider.provide_credentials().now_or_never().is_none(), "a request gives up");
        may_end.add_permits(2);
        let next = provider.provide_credentials().await.unwrap();
        assert_eq!(next.access_key_id(), "1", "the helper was started again");
        let refreshed = provider.provide_credentials().await.unwrap();
        assert_eq!((refreshed.access_key_id(), begun.load(Ordering::Relaxed)), ("2", 2));
    }
}
