//! `k8s://…`, taken apart.

use super::OpenError;
use crate::drivers::{
    options::options,
    request_timeout::{REQUEST_TIMEOUT, request_timeout},
};
use std::{path::PathBuf, time::Duration};

const SCHEME: &str = "k8s://";

/// The folder with the token and the authority of a Pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A namespace's longest name.
const LONGEST_NAMESPACE: usize = 63;

/// Where the Leases are, and how to log in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Address {
    pub(in super::super) namespace: String,
    pub(super) context: Option<String>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) service_account: PathBuf,
    pub(super) server: Option<String>,
    pub(super) request_timeout: Duration,
}

impl Address {
    /// Returns the address that `url` names.
    pub(in super::super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::Url { url: url.into(), why })
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("write k8s://NAMESPACE")?;
    let (namespace, text) = rest.split_once('?').unwrap_or((rest, ""));
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if namespace.is_empty() || namespace.len() > LONGEST_NAMESPACE || !namespace.bytes().all(is_letter) {
        return Err(format!("`{namespace}` is no namespace: write k8s://NAMESPACE?context=CONTEXT"));
    }
    let mut address = Address {
        namespace: namespace.to_owned(),
        context: None,
        kubeconfig: None,
        service_account: SERVICE_ACCOUNT.into(),
        server: None,
        request_timeout: REQUEST_TIMEOUT,
    };
    for option in options(text) {
        match option? {
            ("context", name) => address.context = Some(name.to_owned()),
            ("kubeconfig", path) => address.kubeconfig = Some(path.into()),
            ("service_account", path) => address.service_account = path.into(),
            ("server", url) => address.server = Some(url.to_owned()),
            ("request_timeout", value) => address.request_timeout = request_timeout(value)?,
            (name, _) => {
                return Err(format!(
                    "there is no option `{name}`; there are context, kubeconfig, server, \
                     service_account, request_timeout"
                ));
            }
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_namespace_and_options() {
        let address =
            parse("k8s://batch-1?context=prod&kubeconfig=/k&server=https://a&service_account=/s").unwrap();
        assert_eq!(
            address,
            Address {
                namespace: "batch-1".into(),
                context: Some("prod".into()),
                kubeconfig: Some("/k".into()),
                service_account: "/s".into(),
                server: Some("https://a".into()),
                request_timeout: REQUEST_TIMEOUT,
            }
        );
    }

    #[test]
    fn wrong_url_is_refused_with_the_way_out() {
        let long = format!("k8s://{}", "a".repeat(64));
        let table = [
            ("k8s:batch", "write k8s://NAMESPACE"),
            ("k8s://", "no namespace"),
            ("k8s://a/b", "no namespace"),
            ("k8s://me@a", "no namespace"),
            ("k8s://A", "no namespace"),
            (&*long, "no namespace"),
            ("k8s://a?context", "write context=VALUE"),
            ("k8s://a?token=secret", "no option `token`"),
            ("k8s://a?request_timeout=5", "request_timeout=5s"),
        ];
        for (url, part) in table {
            let why = parse(url).unwrap_err();
            assert!(why.contains(part), "{url}: {why}");
        }
    }
}
