//! [`Upstream`]: the connection to the server behind a proxy.

use super::dialect::{Body, Dialect};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{error::Error, path::Path, pin::Pin, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Mutex,
};
use tokio_rustls::TlsConnector;

/// TLS with a server, whose clients speak to the proxy without it.
#[derive(Clone)]
pub(in crate::faults) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// With a server for `name`, certified by the authority in a file.
    ///
    /// # Errors
    /// The file, or the name.
    pub(in crate::faults) fn of(authority: &Path, name: &'static str) -> Result<Self, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name: ServerName::try_from(name)? })
    }
}

/// Sends requests to one server.
#[derive(Clone)]
pub(super) enum Upstream {
    /// One request after another.
    Http1(Arc<Mutex<http1::SendRequest<Body>>>),
    /// Many at once.
    Http2(http2::SendRequest<Body>),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Moves the bytes of a connection until it ends.
pub(super) type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Upstream {
    /// `None` if the server ends the connection.
    pub(super) async fn handshake(
        server: TcpStream,
        dialect: Dialect,
        tls: Option<Tls>,
    ) -> Option<(Self, Connection)> {
        let server: Box<dyn Stream> = match tls {
            Some(tls) => Box::new(tls.connector.connect(tls.name, server).await.ok()?),
            None => Box::new(server),
        };
        let server = TokioIo::new(server);
        if dialect.is_http2() {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), server).await.ok()?;
            let connection = Box::pin(async { drop(connection.await) });
            return Some((Self::Http2(sender), connection));
        }
        let (sender, connection) = http1::handshake(server).await.ok()?;
        Some((Self::Http1(Arc::new(Mutex::new(sender))), Box::pin(async { drop(connection.await) })))
    }

    /// `None` if the server does not answer any more.
    pub(super) async fn ask(self, request: Request<Body>) -> Option<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                let mut sender = sender.lock().await;
                // After the answer before, the connection needs a moment.
                sender.ready().await.ok()?;
                sender.send_request(request).await.ok()
            }
            Self::Http2(mut sender) => {
                sender.ready().await.ok()?;
                sender.send_request(request).await.ok()
            }
        }
    }
}
