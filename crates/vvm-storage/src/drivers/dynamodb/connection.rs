//! The client: its HTTP connections, time limits and credentials. Nothing is sent twice.

use super::config::Address;
use crate::{
    drivers::{
        config::is_on_loopback,
        errors::{Loading, Renewable, described},
    },
    opening::OpenError,
};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig},
};
use aws_smithy_http_client::{Builder as HttpBuilder, Connector, proxy::ProxyConfig, tls};
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient as _, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
        http_client_fn,
    },
    orchestrator::HttpRequest,
};
use futures_util::FutureExt as _;
use std::{sync::Arc, time::Duration};

/// Connecting, TLS handshake included, may take a request's time limit divided by this number. So a request
/// fails sooner if the server can't be reached than if it is slow.
const CONNECT_SHARE: u32 = 2;

/// The SDK's chain has what the address leaves open: environment, profile, machine.
pub(super) async fn configuration(address: &Address) -> Result<SdkConfig, OpenError> {
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(Region::new(address.region.clone()))
        .http_client(http_client());
    if let Some(profile) = &address.profile {
        loader = loader.profile_name(profile);
    }
    let configuration = loader.load().await;
    let Some(provider) = configuration.credentials_provider() else { return Ok(configuration) };
    // Opening may wait for a slow provider. Within a request, it would look like a slow network.
    let loaded = provider.provide_credentials().await.map_err(|error| of_credentials(&error))?;
    let provider = SharedCredentialsProvider::new(LoadedOnce::new(provider, loaded));
    Ok(configuration.into_builder().credentials_provider(provider).build())
}

pub(super) fn client(configuration: &SdkConfig, address: &Address) -> Client {
    sent_once(at(configuration, address).http_client(http_client()), address.request_timeout)
}

/// (I1) The endpoint is that of the address, or AWS itself, and never that of the environment or the profile.
pub(super) fn at(configuration: &SdkConfig, address: &Address) -> Builder {
    let mut builder = Builder::from(configuration);
    builder.set_endpoint_url(address.endpoint.clone());
    builder
}

/// Overrides what a configuration says of retries and time limits.
pub(super) fn sent_once(configuration: Builder, request_timeout: Duration) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(request_timeout / CONNECT_SHARE)
        .operation_attempt_timeout(request_timeout)
        .build();
    // Nothing is sent twice: if the first copy was applied, the server refuses the second. Requests for
    // credentials are separate and follow the SDK's own rules.
    let configuration = configuration
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build();
    Client::from_conf(configuration)
}

/// Makes the client of all requests, to DynamoDB and for credentials. It follows the proxy variables of the environment,
/// as the SDK's own does, but not for loopback: a proxy on another machine would reach its own.
fn http_client() -> SharedHttpClient {
    let build = || Arc::new([ProxyConfig::disabled(), ProxyConfig::from_env()].map(with));
    let clients = Arc::new(Renewable::new(build(), Box::new(move || Ok(build()))));
    http_client_fn(move |settings, components| {
        let (used, clients) = (clients.current(), Arc::clone(&clients));
        let connectors = used.each_ref().map(|client| client.http_connector(settings, components));
        SharedHttpConnector::new(ByPlace { connectors, used, clients })
    })
}

type Clients = [SharedHttpClient; 2];

pub(super) fn with(proxy: ProxyConfig) -> SharedHttpClient {
    let provider = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc);
    HttpBuilder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder().tls_provider(provider.clone()).proxy_config(proxy.clone());
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector.build()
    })
}

#[derive(Debug)]
struct ByPlace {
    connectors: [SharedHttpConnector; 2],
    used: Arc<Clients>,
    clients: Arc<Renewable<Clients>>,
}

impl HttpConnector for ByPlace {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let [loopback, others] = &self.connectors;
        let connector = if is_on_loopback(request.uri()) { loopback } else { others };
        let (answer, used, clients) =
            (connector.call(request), Arc::clone(&self.used), Arc::clone(&self.clients));
        HttpConnectorFuture::new(async move {
            let pending = clients.until_answered(used);
            let answer = answer.await?;
            pending.answered();
            Ok(answer)
        })
    }
}

pub(super) fn of_credentials(error: &CredentialsError) -> OpenError {
    let said = described(error);
    match error {
        CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
            no_credentials(&said)
        }
        _ => OpenError::passing(format!(
            "the AWS credentials can't be fetched: check the service that issues them, or try again ({said})"
        )),
    }
}

pub(super) fn no_credentials(said: &str) -> OpenError {
    OpenError::refused(format!(
        "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (to any value for a local \
         endpoint), profile=NAME, or a role of the machine or container ({said})"
    ))
}

/// The SDK loads within a request, whose time-out ends the loading: the answer of a slow helper would never be used.
#[derive(Debug)]
pub(super) struct LoadedOnce {
    provider: SharedCredentialsProvider,
    loading: Loading<Result<Credentials, Arc<CredentialsError>>>,
}

impl LoadedOnce {
    pub(super) fn new(provider: SharedCredentialsProvider, loaded: Credentials) -> Self {
        Self { provider, loading: Loading::ended(Ok(loaded)) }
    }
}

impl ProvideCredentials for LoadedOnce {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let begin = || {
                let provider = self.provider.clone();
                async move { provider.provide_credentials().await.map_err(Arc::new) }.boxed()
            };
            self.loading.join(begin).await.map_err(CredentialsError::provider_error)
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
