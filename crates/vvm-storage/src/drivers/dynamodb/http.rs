//! [`client`]: the client of all requests, to DynamoDB and for credentials. Those to this machine take no proxy.

use crate::drivers::address::is_on_loopback;
use aws_smithy_http_client::{Builder, Connector, proxy::ProxyConfig, tls};
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient as _, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
        http_client_fn,
    },
    orchestrator::HttpRequest,
};

/// Makes one that follows the proxy variables of the environment, as the SDK's own does, but not for loopback: a
/// proxy on another machine would reach its own.
pub(super) fn client() -> SharedHttpClient {
    let (loopback, others) = (with(ProxyConfig::disabled()), with(ProxyConfig::from_env()));
    http_client_fn(move |settings, components| {
        let connector = |client: &SharedHttpClient| client.http_connector(settings, components);
        SharedHttpConnector::new(ByPlace { loopback: connector(&loopback), others: connector(&others) })
    })
}

fn with(proxy: ProxyConfig) -> SharedHttpClient {
    let provider = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc);
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder().tls_provider(provider.clone()).proxy_config(proxy.clone());
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector.build()
    })
}

#[derive(Debug)]
struct ByPlace {
    loopback: SharedHttpConnector,
    others: SharedHttpConnector,
}

impl HttpConnector for ByPlace {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connector = if is_on_loopback(request.uri()) { &self.loopback } else { &self.others };
        connector.call(request)
    }
}
