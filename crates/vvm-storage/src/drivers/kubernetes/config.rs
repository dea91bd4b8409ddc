//! URL and options; the [`Cluster`] that they name.

use super::kubeconfig::{self, Token, unusable};
use crate::{
    drivers::{
        config::{REQUEST_TIMEOUT, is_loopback, options, request_timeout},
        tls::{ExpectedName, Pem, Tls},
    },
    opening::OpenError,
};
use hyper::Uri;
use rustls::pki_types::ServerName;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

const SCHEME: &str = "k8s://";

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const LONGEST_NAMESPACE: usize = 63;

const NO_LOGIN: &str = "a server has no login in its URL: give it to the user of the context";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) namespace: String,
    pub(super) context: Option<String>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) server: Option<String>,
    pub(super) request_timeout: Duration,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("write k8s://NAMESPACE")?;
    let (namespace, text) = rest.split_once('?').unwrap_or((rest, ""));
    if namespace.contains('@') {
        return Err(
            "this URL has no login: it is that of the kubeconfig, or of the Pod's service account. Write \
                    k8s://NAMESPACE?context=CONTEXT"
                .into(),
        );
    }
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if namespace.is_empty() || namespace.len() > LONGEST_NAMESPACE || !namespace.bytes().all(is_letter) {
        return Err(format!("`{namespace}` is no namespace: write k8s://NAMESPACE?context=CONTEXT"));
    }
    let mut address = Address {
        namespace: namespace.to_owned(),
        context: None,
        kubeconfig: None,
        server: None,
        request_timeout: REQUEST_TIMEOUT,
    };
    for option in options(text) {
        match option? {
            ("context", name) => address.context = Some(name.to_owned()),
            ("kubeconfig", path) => address.kubeconfig = Some(path.into()),
            ("server", url) if url.contains('@') => return Err(NO_LOGIN.into()),
            ("server", url) => address.server = Some(url.to_owned()),
            ("request_timeout", value) => address.request_timeout = request_timeout(value)?,
            (name, _) => {
                return Err(format!(
                    "there is no option `{name}`; there are context, kubeconfig, server, request_timeout"
                ));
            }
        }
    }
    Ok(address)
}

/// The kubeconfig is read once, because it may name another cluster later; the files that it names are read again.
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// What paths begin with, without a slash at the end: a proxy for several clusters has one.
    pub(super) path: String,
    /// `None` for plain HTTP, which is accepted on loopback alone.
    pub(super) tls: Option<(Tls, ServerName<'static>)>,
    pub(super) token: Token,
    pub(super) namespace: String,
    pub(super) credentials: String,
}

pub(super) fn find(address: &Address) -> Result<Cluster, OpenError> {
    let is_kubeconfig_named = address.context.is_some() || address.kubeconfig.is_some();
    let pod = || Some((env::var("KUBERNETES_SERVICE_HOST").ok()?, env::var("KUBERNETES_SERVICE_PORT").ok()?));
    let token = Path::new(SERVICE_ACCOUNT).join("token");
    match pod() {
        Some((host, port)) if !is_kubeconfig_named && token.exists() => in_pod(address, &host, &port, token),
        _ => {
            let path = kubeconfig_path(address)?;
            let text = fs::read_to_string(&path).map_err(|cause| unusable(&path, cause))?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let found = kubeconfig::find(&text, &folder, address.context.as_deref());
            let found = found.map_err(|why| unusable(&path, why))?;
            let place = (found.server.as_str(), found.server_name.as_deref());
            let credentials = format!("context {} of {}", found.context, path.display());
            cluster(place, found.tls, found.token, address, credentials, |why| unusable(&path, why))
        }
    }
}

/// `KUBECONFIG` may name several files, which kubectl merges; here there must be one.
fn kubeconfig_path(address: &Address) -> Result<PathBuf, OpenError> {
    if let Some(path) = &address.kubeconfig {
        return Ok(path.clone());
    }
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".kube/config");
    let named = env::var_os("KUBECONFIG").filter(|named| !named.is_empty());
    let named = named.map(|named| env::split_paths(&named).collect::<Vec<_>>());
    let candidates = named.unwrap_or_else(|| vec![home.clone()]);
    let mut existing = candidates.iter().filter(|path| path.exists());
    match (existing.next(), existing.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(one), Some(_)) => {
            Err(unusable(one, "KUBECONFIG names several files: write kubeconfig=PATH with one"))
        }
        (None, _) => Err(OpenError::refused(format!(
            "no credentials for Kubernetes: in a Pod, mount its service account; elsewhere write \
             kubeconfig=PATH, set KUBECONFIG, or create {}",
            candidates.first().unwrap_or(&home).display()
        ))),
    }
}

fn in_pod(address: &Address, host: &str, port: &str, token: PathBuf) -> Result<Cluster, OpenError> {
    let authority = Some(Pem::File(Path::new(SERVICE_ACCOUNT).join("ca.crt")));
    let tls = Tls { authority, names: ExpectedName::OfAddress, own: None };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let credentials = format!("service account of {SERVICE_ACCOUNT}");
    let server = format!("https://{host}:{port}");
    cluster((&server, None), tls, Token::File(token.into()), address, credentials, |why| {
        OpenError::refused(format!("KUBERNETES_SERVICE_HOST or _PORT is wrong: {why} [{server}]"))
    })
}

pub(super) fn cluster(
    (server, server_name): (&str, Option<&str>),
    tls: Tls,
    token: Token,
    address: &Address,
    credentials: String,
    wrong: impl Fn(String) -> OpenError,
) -> Result<Cluster, OpenError> {
    let server = address.server.as_deref().unwrap_or(server);
    if server.contains('@') {
        return Err(wrong(NO_LOGIN.into()));
    }
    let wrong = |why: &str| wrong(format!("server `{server}`: {why}"));
    let uri: Uri = server.parse().map_err(|cause| wrong(&format!("{cause}")))?;
    let host = uri.host().ok_or_else(|| wrong("no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let (tls, port) = match uri.scheme_str() {
        Some("https") => {
            let name = server_name.unwrap_or(&host).to_owned();
            let name = ServerName::try_from(name).map_err(|cause| wrong(&cause.to_string()))?;
            (Some((tls, name)), 443)
        }
        Some("http") if is_loopback(&host) => (None, 80),
        _ => return Err(wrong("write https://HOST; plain http is accepted on loopback alone")),
    };
    let path = uri.path().trim_end_matches('/').to_owned();
    Ok(Cluster {
        server: format!(
            "{}://{}{path}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map_or("", |at| at.as_str())
        ),
        port: uri.port_u16().unwrap_or(port),
        path,
        host,
        tls,
        token,
        namespace: address.namespace.clone(),
        credentials,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_namespace_and_options() {
        let context = "kubernetes-admin@kubernetes";
        let url = format!("k8s://batch-1?context={context}&kubeconfig=/k@h&server=https://a");
        let address = parse(&url).unwrap();
        assert_eq!(
            address,
            Address {
                namespace: "batch-1".into(),
                context: Some(context.into()),
                kubeconfig: Some("/k@h".into()),
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
            ("k8s://me@a", "this URL has no login"),
            ("k8s://a?server=https://me:pass@b", "a server has no login"),
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
