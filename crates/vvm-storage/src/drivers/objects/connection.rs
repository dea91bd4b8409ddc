//! Configures the client library: places from the URL alone, credentials from the platform's chain. The library's
//! errors don't tell an answer to our request from one to its request for credentials, nor whether anything was sent.
//! [`TracedConnector`] notes it in a [`Trace`], which stands in the extensions of our request.

use super::{
    Response,
    config::{Address, ObjectStoreBuilder, Platform},
    rows::Names,
    unusable_credentials,
};
use crate::{
    drivers::{
        config::is_loopback,
        errors::{Loading, Renewable, never_connected},
    },
    opening::{OpenError, OpenErrorKind},
};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use object_store::{
    Certificate, ClientOptions, CredentialProvider, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, S3ConditionalPut},
    azure::MicrosoftAzureBuilder,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
    gcp::GoogleCloudStorageBuilder,
};
use std::{
    env, fmt, fs, io,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock as _, SystemClock};

/// Connecting, TLS handshake included, may take a request's time limit divided by this number.
const CONNECT_SHARE: u32 = 2;

/// The wait for a credential, likewise: an attempt at the shortest TTL has half of its time left.
const PATIENCE_SHARE: u32 = 8;

const OF_S3: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
];

const OF_GOOGLE: &[&str] = &[
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

const OF_AZURE: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_IDENTITY_ENDPOINT",
];

/// Google's own address. A file of credentials may name another, which is not used.
const GOOGLE: &str = "https://storage.googleapis.com";

/// The library's store. It keeps its credentials until they expire, even if they are refused.
type Store = Renewable<dyn ObjectStore>;

#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) store: Arc<Store>,
    pub(super) platform: Platform,
    pub(super) names: Names,
    pub(super) clock: SystemClock,
    pub(super) timeout: Duration,
}

pub(super) fn connect(address: &Address) -> Result<Requests, OpenError> {
    connect_with(address, |name| env::var(name).ok())
}

pub(super) fn connect_with(
    address: &Address,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Requests, OpenError> {
    let builder = match address.platform {
        Platform::S3 => {
            let builder = credentials(OF_S3, variable)
                .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
                .with_bucket_name(&address.bucket)
                .with_region(address.region.as_deref().unwrap_or("us-east-1"));
            ObjectStoreBuilder::S3(match &address.endpoint {
                Some(endpoint) => builder.with_endpoint(endpoint),
                None => builder,
            })
        }
        Platform::Google => {
            let builder = credentials(OF_GOOGLE, variable)
                .fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| {
                    builder.with_config(key, value)
                });
            ObjectStoreBuilder::Google(builder.with_bucket_name(&address.bucket))
        }
        Platform::Azure => {
            let builder = credentials(OF_AZURE, variable)
                .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(key, value));
            let builder = builder.with_account(address.account.as_deref().unwrap_or_default());
            ObjectStoreBuilder::Azure(builder.with_container_name(&address.bucket))
        }
    };
    connect_by(address, builder)
}

/// Overrides what `builder` says of retries, conditions, time limits and connections.
pub(super) fn connect_by(address: &Address, builder: ObjectStoreBuilder) -> Result<Requests, OpenError> {
    let clock = SystemClock::start().map_err(|cause| {
        let text = format!("the system refuses the thread that waits for answers: {cause}");
        OpenError::new(OpenErrorKind::System, text)
    })?;
    let (options, of) = (options(address)?, address.clone());
    let connector = Renewable::new(clients(address)?, Box::new(move || clients(&of)));
    let connector = TracedConnector(Arc::new(connector));
    let patience = Patience { clock: clock.clone(), limit: address.request_timeout / PATIENCE_SHARE };
    let (endpoint, account) = (address.endpoint.clone(), address.account.clone().unwrap_or_default());
    let build = move || {
        with_conditions(builder.clone(), endpoint.as_deref(), &account, &connector, &options, &patience)
            .map_err(|error| unusable_credentials(&error))
    };
    let store = Store::new(build()?, Box::new(build));
    Ok(Requests {
        store: Arc::new(store),
        platform: address.platform,
        names: Names::below(&address.prefix),
        clock,
        timeout: address.request_timeout,
    })
}

fn with_conditions(
    builder: ObjectStoreBuilder,
    endpoint: Option<&str>,
    account: &str,
    connector: &TracedConnector,
    options: &ClientOptions,
    patience: &Patience,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let (connector, options) = (connector.clone(), options.clone());
    match builder {
        ObjectStoreBuilder::S3(builder) => {
            let builder = builder
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_client_options(options)
                .with_retry(sent_once())
                .with_http_connector(connector);
            let last = LastCredential::of(builder.clone().build()?.credentials(), patience);
            Ok(Arc::new(builder.with_credentials(last).build()?))
        }
        ObjectStoreBuilder::Google(builder) => {
            let builder = builder
                .with_base_url(endpoint.unwrap_or(GOOGLE))
                .with_client_options(options)
                .with_retry(sent_once())
                .with_http_connector(connector);
            let last = LastCredential::of(builder.clone().build()?.credentials(), patience);
            Ok(Arc::new(builder.with_credentials(last).build()?))
        }
        ObjectStoreBuilder::Azure(builder) => {
            let own = format!("https://{account}.blob.core.windows.net");
            let builder = builder
                .with_endpoint(endpoint.map_or(own, str::to_owned))
                .with_client_options(options)
                .with_retry(sent_once())
                .with_http_connector(connector);
            let last = LastCredential::of(builder.clone().build()?.credentials(), patience);
            Ok(Arc::new(builder.with_credentials(last).build()?))
        }
    }
}

/// The library renews a credential minutes before it expires. Until then a request uses the last one if its issuer gives
/// none in time. One that has expired is refused by the store, which is then built anew.
struct LastCredential<C> {
    issuer: Arc<dyn CredentialProvider<Credential = C>>,
    last: Mutex<Option<Arc<C>>>,
    loading: Loading<Result<Arc<C>, Arc<object_store::Error>>>,
    patience: Patience,
}

#[derive(Clone)]
struct Patience {
    clock: SystemClock,
    limit: Duration,
}

impl<C: Send + Sync + 'static> LastCredential<C> {
    fn of(issuer: &Arc<dyn CredentialProvider<Credential = C>>, patience: &Patience) -> Arc<Self> {
        let (issuer, last, patience) = (Arc::clone(issuer), Mutex::new(None), patience.clone());
        Arc::new(Self { issuer, last, loading: Loading::new(), patience })
    }
}

impl<C> fmt::Debug for LastCredential<C> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.issuer.fmt(out)
    }
}

#[async_trait]
impl<C: Send + Sync + 'static> CredentialProvider for LastCredential<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let loading = self.loading.join(|| {
            let issuer = Arc::clone(&self.issuer);
            async move { issuer.get_credential().await.map_err(Arc::new) }.boxed()
        });
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last().clone();
        let issued = match &known {
            None => loading.await,
            Some(known) => tokio::select! {
                biased;
                issued = loading => issued,
                () = self.patience.clock.sleep(self.patience.limit) => return Ok(Arc::clone(known)),
            },
        };
        match issued {
            Ok(issued) => Ok(Arc::clone(last().insert(issued))),
            Err(error) => known
                .ok_or_else(|| object_store::Error::Generic { store: "credentials", source: error.into() }),
        }
    }
}

fn options(address: &Address) -> Result<ClientOptions, OpenError> {
    let options = ClientOptions::new()
        .with_http1_only()
        .with_timeout(address.request_timeout)
        .with_connect_timeout(address.request_timeout / CONNECT_SHARE)
        .with_allow_http(address.is_http_allowed);
    let authorities = authorities(address, Certificate::from_pem_bundle)?;
    Ok(authorities.into_iter().fold(options, ClientOptions::with_root_certificate))
}

fn authorities<C, E: fmt::Display>(
    address: &Address,
    read: impl FnOnce(&[u8]) -> Result<Vec<C>, E>,
) -> Result<Vec<C>, OpenError> {
    let Some(file) = &address.tls_ca else { return Ok(Vec::new()) };
    let unusable = |why: String| OpenError::refused(format!("tls_ca={}: {why}", file.display()));
    let pem = fs::read(file).map_err(|cause| unusable(cause.to_string()))?;
    let authorities = read(&pem).map_err(|cause| unusable(cause.to_string()))?;
    if authorities.is_empty() { Err(unusable("the file has no certificate".into())) } else { Ok(authorities) }
}

fn clients(address: &Address) -> Result<Arc<Clients>, OpenError> {
    let authorities = authorities(address, reqwest::Certificate::from_pem_bundle)?;
    let build = |client: reqwest::ClientBuilder| {
        let client = client
            .redirect(reqwest::redirect::Policy::none())
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .user_agent(concat!("vvm/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .timeout(address.request_timeout)
            .connect_timeout(address.request_timeout / CONNECT_SHARE)
            .tls_certs_merge(authorities.clone());
        client.build().map(HttpClient::new).map_err(|cause| unusable_credentials(&cause))
    };
    let new = reqwest::Client::builder;
    // A proxy on another machine would reach its own loopback.
    let (objects, loopback) = (new().https_only(!address.is_http_allowed), new().no_proxy());
    Ok(Arc::new(Clients { objects: build(objects)?, loopback: build(loopback)? }))
}

/// Nothing is sent twice (I7). It holds for requests for credentials, too: the next call fetches them again.
fn sent_once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Returns the variables of `names` that are set. Others of the library name other places, or switch conditions off.
fn credentials<Key: FromStr>(
    names: &[&str],
    variable: impl Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (Key, String)> {
    names.iter().filter_map(move |name| Some((name.to_ascii_lowercase().parse().ok()?, variable(name)?)))
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum RequestOutcome {
    #[default]
    NotSent,
    Sent,
    Answered(Response),
}

#[derive(Clone, Default, Debug)]
pub(super) struct Trace(Arc<Mutex<RequestOutcome>>);

impl Trace {
    pub(super) fn fate(&self) -> RequestOutcome {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, RequestOutcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes clients that trace requests, and send them by these, which follow no redirect: a 303 would turn
/// a PUT into a GET, whose answer would count as that of the PUT.
#[derive(Clone, Debug)]
struct TracedConnector(Arc<Renewable<Clients>>);

#[derive(Debug)]
struct Clients {
    objects: HttpClient,
    /// For all requests to this machine, without a proxy.
    loopback: HttpClient,
}

impl HttpConnector for TracedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let credentials = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(TracedHttpService { clients: Arc::clone(&self.0), credentials }))
    }
}

#[derive(Debug)]
struct TracedHttpService {
    clients: Arc<Renewable<Clients>>,
    /// The client of the library, with its options: metadata of a machine are read in clear text.
    credentials: HttpClient,
}

#[async_trait]
impl HttpService for TracedHttpService {
    /// Dropped, the outcome is [`RequestOutcome::Sent`] unless there was an answer.
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_here = request.uri().host().is_some_and(is_loopback);
        let clients = self.clients.current();
        let by_place = |other| if is_here { &clients.loopback } else { other };
        let Some(trace) = request.extensions().get::<Trace>().cloned() else {
            // A list, or a request for credentials.
            let is_list = |query: &str| query.contains("list-type=2") || query.contains("comp=list");
            let lists = request.uri().query().is_some_and(is_list);
            return by_place(if lists { &clients.objects } else { &self.credentials }).execute(request).await;
        };
        {
            let mut fate = trace.lock();
            // (I7) A second copy would be refused because of the first, which then seems not applied.
            if *fate != RequestOutcome::NotSent {
                let repeated = io::Error::other("the client library would send a request twice");
                return Err(HttpError::new(HttpErrorKind::Unknown, repeated));
            }
            *fate = RequestOutcome::Sent;
        }
        let pending = self.clients.until_answered(Arc::clone(&clients));
        match by_place(&clients.objects).execute(request).await {
            Ok(response) => {
                pending.answered();
                let (parts, body) = response.into_parts();
                let (status, headers) = (parts.status, parts.headers.clone());
                if status.is_success() {
                    *trace.lock() = RequestOutcome::Answered(Response::new(status.as_u16(), headers, &[]));
                    return Ok(HttpResponse::from_parts(parts, body));
                }
                // The status counts even if the rest of the answer is lost.
                let body = body.bytes().await.unwrap_or_default();
                *trace.lock() = RequestOutcome::Answered(Response::new(status.as_u16(), headers, &body));
                Ok(HttpResponse::from_parts(parts, body.into()))
            }
            Err(error) => {
                if never_connected(&error) {
                    *trace.lock() = RequestOutcome::NotSent;
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::{aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey};

    #[test]
    fn library_knows_every_variable() {
        let unknown = |names: &[&str], is_known: fn(&str) -> bool| {
            names.iter().find(|name| !is_known(&name.to_ascii_lowercase())).copied().map(str::to_owned)
        };
        assert_eq!(unknown(OF_S3, |name| name.parse::<AmazonS3ConfigKey>().is_ok()), None);
        assert_eq!(unknown(OF_GOOGLE, |name| name.parse::<GoogleConfigKey>().is_ok()), None);
        assert_eq!(unknown(OF_AZURE, |name| name.parse::<AzureConfigKey>().is_ok()), None);
    }
}
