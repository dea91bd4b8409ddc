//! One connection to one member.

use super::{
    Address, OpenError,
    session::{Session, Stream, described},
};
use crate::drivers::{hosts::Host, tls_options};
use rustls::pki_types::ServerName;
use std::io;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use vvm_clock::{Clock, SystemClock};

/// A member, and how to connect to it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) endpoint: usize,
    pub(super) address: &'a Address,
    pub(super) tls: Option<&'a TlsConnector>,
}

/// Connects to a member, in a part of a request's time, so that a silent one leaves time for the others.
pub(super) async fn connect(target: Target<'_>, clock: &SystemClock) -> Result<Session, OpenError> {
    let Target { endpoint, address: Address { hosts, request_timeout, .. }, .. } = target;
    // There are a few members, and this is one of them.
    let parts = u32::try_from(hosts.len() + 1).unwrap_or(u32::MAX);
    let (host, within) = (&hosts[endpoint], *request_timeout / parts);
    tokio::select! {
        biased;
        connected = start(target, host) => connected,
        () = clock.sleep(within) => {
            let why = format!("no answer within {}", vvm_clock::Span(within));
            Err(OpenError::Unreachable { host: host.to_string(), why })
        }
    }
}

async fn start(Target { endpoint, tls, .. }: Target<'_>, host: &Host) -> Result<Session, OpenError> {
    let stream = async {
        let stream = TcpStream::connect((&*host.name, host.port)).await?;
        // A request is one small message, whose answer is waited for.
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let unreachable =
        |cause: io::Error| OpenError::Unreachable { host: host.to_string(), why: cause.to_string() };
    let stream = stream.await.map_err(unreachable)?;
    let (stream, scheme): (Box<dyn Stream>, _) = match tls {
        None => (Box::new(stream), "http"),
        Some(tls) => {
            let name = ServerName::try_from(host.name.clone())
                .map_err(|cause| unreachable(io::Error::other(cause)))?;
            let stream = tls.connect(name, stream).await.map_err(|cause| of_stream(host, &cause))?;
            (Box::new(stream), "https")
        }
    };
    let started = Session::start(stream, endpoint, format!("{scheme}://{host}")).await;
    started.map_err(|error| match error.get_io() {
        // In TLS 1.3 a server refuses a certificate after the handshake.
        Some(cause) => of_stream(host, cause),
        None => OpenError::NotEtcd { host: host.to_string(), why: described(&error) },
    })
}

/// Nothing was sent but a greeting.
fn of_stream(host: &Host, cause: &io::Error) -> OpenError {
    let (host, why) = (host.to_string(), cause.to_string());
    let error = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
    match error.or_else(|| alert(&why)) {
        Some(error) => OpenError::Tls { host, way_out: tls_options::way_out(&error), why },
        None if cause.kind() == io::ErrorKind::ConnectionRefused => OpenError::Unreachable { host, why },
        // A server that expects TLS, or a certificate, may close the connection without a word.
        None => OpenError::Unreachable {
            host,
            why: why + "; if it requires TLS, add tls_ca=PATH, and if a certificate, tls_certificate=PATH",
        },
    }
}

/// The alert of a member that refused our certificate after the handshake. HTTP/2 has kept its text alone.
fn alert(why: &str) -> Option<rustls::Error> {
    use rustls::AlertDescription as Alert;
    let text = why.strip_prefix("received fatal alert: ")?;
    let known = [Alert::CertificateRequired, Alert::CertificateExpired];
    let known = known.into_iter().find(|alert| text == format!("{alert:?}"));
    Some(rustls::Error::AlertReceived(known.unwrap_or(Alert::BadCertificate)))
}
