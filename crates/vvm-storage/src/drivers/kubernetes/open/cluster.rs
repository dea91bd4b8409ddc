//! [`Cluster`]: an API server and our credentials, from a kubeconfig or a Pod's service account.

use super::{Address, OpenError, kubeconfig, tls, token::Token};
use hyper::Uri;
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// Where an API server is, and who we are.
pub(super) struct Cluster {
    /// For display: `https://host:port`.
    pub(super) server: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// What paths begin with, without a slash at the end: a proxy for several clusters has one.
    pub(super) path: String,
    /// `None` for plain HTTP, which is accepted on loopback alone.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    pub(super) token: Token,
    pub(super) namespace: String,
    /// For display.
    pub(super) credentials: String,
}

/// Returns the cluster that the address names.
pub(super) fn find(address: &Address) -> Result<Cluster, OpenError> {
    let is_kubeconfig_named = address.context.is_some() || address.kubeconfig.is_some();
    let pod = || Some((env::var("KUBERNETES_SERVICE_HOST").ok()?, env::var("KUBERNETES_SERVICE_PORT").ok()?));
    let token = address.service_account.join("token");
    match pod() {
        Some((host, port)) if !is_kubeconfig_named && token.exists() => in_pod(address, &host, &port, token),
        _ => {
            let path = kubeconfig_path(address)?;
            let text = fs::read_to_string(&path)
                .map_err(|cause| OpenError::File { path: path.clone(), why: cause.to_string() })?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let found = kubeconfig::find(&text, &folder, address.context.as_deref());
            let found = found.map_err(|why| OpenError::File { path: path.clone(), why })?;
            let own = found.certificate.as_ref().zip(found.key.as_ref());
            let tls = tls::configuration(found.authority.as_ref(), own)?;
            let place = (found.server.as_str(), found.server_name.as_deref());
            let credentials = format!("context {} of {}", found.context, path.display());
            cluster(place, tls, found.token, address, credentials)
                .map_err(|why| OpenError::File { path, why })
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
        (Some(one), Some(_)) => Err(OpenError::File {
            path: one.clone(),
            why: "KUBECONFIG names several files: write kubeconfig=PATH with one".into(),
        }),
        (None, _) => {
            Err(OpenError::NoCredentials { kubeconfig: candidates.first().cloned().unwrap_or(home) })
        }
    }
}

fn in_pod(address: &Address, host: &str, port: &str, token: PathBuf) -> Result<Cluster, OpenError> {
    let authority = address.service_account.join("ca.crt");
    let tls = tls::configuration(Some(&tls::Pem::File(authority)), None)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let credentials = format!("service account of {}", address.service_account.display());
    let server = format!("https://{host}:{port}");
    cluster((&server, None), tls, Token::File(token.into()), address, credentials).map_err(|why| {
        OpenError::Refused { server, why: format!("KUBERNETES_SERVICE_HOST or _PORT is wrong: {why}") }
    })
}

fn cluster(
    (server, server_name): (&str, Option<&str>),
    tls: Arc<tokio_rustls::rustls::ClientConfig>,
    token: Token,
    address: &Address,
    credentials: String,
) -> Result<Cluster, String> {
    let server = address.server.as_deref().unwrap_or(server);
    let wrong = |why: &str| format!("server `{server}`: {why}");
    let uri: Uri = server.parse().map_err(|cause| wrong(&format!("{cause}")))?;
    let host = uri.host().ok_or_else(|| wrong("no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let (tls, port) = match uri.scheme_str() {
        Some("https") => {
            let name = server_name.unwrap_or(&host).to_owned();
            let name = ServerName::try_from(name).map_err(|cause| wrong(&cause.to_string()))?;
            (Some((TlsConnector::from(tls), name)), 443)
        }
        Some("http") if is_loopback => (None, 80),
        _ => return Err(wrong("write https://HOST; plain http is accepted on loopback alone")),
    };
    Ok(Cluster {
        server: format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map_or("", |at| at.as_str())
        ),
        port: uri.port_u16().unwrap_or(port),
        path: uri.path().trim_end_matches('/').to_owned(),
        host,
        tls,
        token,
        namespace: address.namespace.clone(),
        credentials,
    })
}
