//! Opens a table: configures the client, then checks the table.

mod address;
mod credentials;
mod error;
mod requests;
mod table;
#[cfg(test)]
mod tests;

pub(super) use address::Address;
pub use error::OpenError;
pub(super) use requests::{PEEKED_AT_ONCE, Requests};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig},
};
use credentials::LoadedOnce;
use std::time::Duration;
use vvm_clock::SystemClock;

/// Connecting, TLS handshake included, may take a request's time limit divided by this number. So a request
/// fails sooner if the server can't be reached than if it is slow.
const CONNECT_SHARE: u32 = 2;

/// How long a new table may take to become active. DynamoDB needs about ten seconds.
const CREATION_TIMEOUT: Duration = Duration::from_secs(120);

impl Address {
    /// Returns the address that `url` names.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        address::parse(url).map_err(|why| OpenError::Url { url: url.into(), why })
    }
}

/// Connects, and checks the table.
pub(super) async fn open(address: &Address) -> Result<Requests, OpenError> {
    open_with(&configuration(address).await?, address).await
}

/// Creates the table if it is missing. May be repeated, and run by several processes at once.
///
/// # Errors
/// See [`OpenError`]. Fails also if the existing table differs from the one it would create.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let address = Address::parse(url)?;
    init_with(&configuration(&address).await?, &address).await
}

async fn open_with(configuration: &SdkConfig, address: &Address) -> Result<Requests, OpenError> {
    let client = client(configuration, address.request_timeout);
    table::check(&client, address).await?;
    Ok(Requests::new(client, address.table.clone()))
}

async fn init_with(configuration: &SdkConfig, address: &Address) -> Result<(), OpenError> {
    let client = client(configuration, address.request_timeout);
    let clock = SystemClock::start().map_err(OpenError::System)?;
    table::create(&client, address, &clock).await?;
    table::check(&client, address).await
}

/// Loads the settings that the address leaves open from the SDK's chain: environment, profile, machine.
async fn configuration(address: &Address) -> Result<SdkConfig, OpenError> {
    let mut loader =
        aws_config::defaults(BehaviorVersion::v2026_01_12()).region(Region::new(address.region.clone()));
    if let Some(endpoint) = &address.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(profile) = &address.profile {
        loader = loader.profile_name(profile);
    }
    let configuration = loader.load().await;
    let Some(provider) = configuration.credentials_provider() else { return Ok(configuration) };
    // Opening may wait for a slow provider. Within a request, it would look like a slow network.
    let loaded = provider.provide_credentials().await.map_err(OpenError::of_credentials)?;
    let provider = SharedCredentialsProvider::new(LoadedOnce::new(provider, loaded));
    Ok(configuration.into_builder().credentials_provider(provider).build())
}

fn client(configuration: &SdkConfig, request_timeout: Duration) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(request_timeout / CONNECT_SHARE)
        .operation_attempt_timeout(request_timeout)
        .build();
    // Nothing is sent twice: if the first copy was applied, the server refuses the second. Requests for
    // credentials are separate and follow the SDK's own rules.
    let configuration = Builder::from(configuration)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build();
    Client::from_conf(configuration)
}
