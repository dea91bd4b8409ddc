//! Configures the client library: places from the URL alone, credentials from the platform's chain.

use super::{
    address::{Address, Names, ObjectStoreBuilder, Platform},
    errors::unusable_credentials,
    requests::{Requests, TracedConnector},
};
use crate::opening::{OpenError, OpenErrorKind};
use object_store::{
    Certificate, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, S3ConditionalPut},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
};
use std::{env, fs, str::FromStr, sync::Arc};
use vvm_clock::SystemClock;

/// Connecting, TLS handshake included, may take a request's time limit divided by this number.
const CONNECT_SHARE: u32 = 2;

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
    let (connector, options) = clients(address)?;
    let store: object_store::Result<Arc<dyn ObjectStore>> = match builder {
        ObjectStoreBuilder::S3(builder) => builder
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(options)
            .with_retry(sent_once())
            .with_http_connector(connector)
            .build()
            .map(|store| Arc::new(store) as _),
        ObjectStoreBuilder::Google(builder) => builder
            .with_base_url(address.endpoint.as_deref().unwrap_or(GOOGLE))
            .with_client_options(options)
            .with_retry(sent_once())
            .with_http_connector(connector)
            .build()
            .map(|store| Arc::new(store) as _),
        ObjectStoreBuilder::Azure(builder) => {
            let account = address.account.as_deref().unwrap_or_default();
            let own = format!("https://{account}.blob.core.windows.net");
            builder
                .with_endpoint(address.endpoint.clone().unwrap_or(own))
                .with_client_options(options)
                .with_retry(sent_once())
                .with_http_connector(connector)
                .build()
                .map(|store| Arc::new(store) as _)
        }
    };
    let store = store.map_err(|error| unusable_credentials(&error))?;
    Ok(Requests {
        store,
        platform: address.platform,
        names: Names::below(&address.prefix),
        clock,
        timeout: address.request_timeout,
    })
}

fn clients(address: &Address) -> Result<(TracedConnector, ClientOptions), OpenError> {
    let (timeout, connect_timeout) = (address.request_timeout, address.request_timeout / CONNECT_SHARE);
    let mut options = ClientOptions::new()
        .with_http1_only()
        .with_timeout(timeout)
        .with_connect_timeout(connect_timeout)
        .with_allow_http(address.is_http_allowed);
    let builder = || {
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .user_agent(concat!("vvm/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .timeout(timeout)
            .connect_timeout(connect_timeout)
    };
    // A proxy on another machine would reach its own loopback.
    let (mut objects, mut loopback) = (builder().https_only(!address.is_http_allowed), builder().no_proxy());
    if let Some(file) = &address.tls_ca {
        let unusable = |why: String| OpenError::refused(format!("tls_ca={}: {why}", file.display()));
        let pem = fs::read(file).map_err(|cause| unusable(cause.to_string()))?;
        let authorities = Certificate::from_pem_bundle(&pem).map_err(|cause| unusable(cause.to_string()))?;
        if authorities.is_empty() {
            return Err(unusable("the file has no certificate".into()));
        }
        options = authorities.into_iter().fold(options, ClientOptions::with_root_certificate);
        let authorities = reqwest::Certificate::from_pem_bundle(&pem);
        let authorities = authorities.map_err(|cause| unusable(cause.to_string()))?;
        objects = objects.tls_certs_merge(authorities.clone());
        loopback = loopback.tls_certs_merge(authorities);
    }
    let build = |client: reqwest::ClientBuilder| client.build().map_err(|cause| unusable_credentials(&cause));
    Ok((TracedConnector { objects: build(objects)?, loopback: build(loopback)? }, options))
}

/// Nothing is sent twice (I7). It holds for requests for credentials, too: the next call fetches them again.
fn sent_once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Returns the variables of `names` that are set. No others: some of the library's name other places, or
/// switch conditions off.
fn credentials<Key: FromStr>(
    names: &[&str],
    variable: impl Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (Key, String)> {
    names.iter().filter_map(move |name| Some((name.to_ascii_lowercase().parse().ok()?, variable(name)?)))
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
