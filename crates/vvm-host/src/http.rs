//! The HTTP server of a host, with status, metrics and probes, and of `vvm ui`. It is one future with all connections
//! in it: nothing to join, and nothing left when it is dropped. It waits only for its sockets, so it delays no renewal.

mod metrics;

use crate::status::{HostStatus, Role, SeenLeader};
use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable},
    stream::FuturesUnordered,
};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use metrics::{HostMetrics, ServiceMetrics, add_status};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use std::{
    collections::BTreeMap, convert::Infallible, fmt::Write as _, io, net::SocketAddr, sync::Arc,
    time::Duration,
};
use tokio::net::{TcpListener, TcpStream};
use vvm_clock::Clock;

/// How many connections are open at once. A host may have as few as 64 descriptors, and its storage needs some.
const CONNECTIONS: usize = 16;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest head of a request: the least that hyper allows.
const HEAD_BYTES: usize = 8 * 1024;

/// The pause after the system refused a connection, mostly for want of descriptors. Avoids a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// A server of GET and HEAD: no request changes anything.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
    /// How many connections are open at once: 16 unless set. A new one closes the oldest.
    pub most_connections: usize,
}

/// What a server answers.
pub trait HttpAnswers {
    /// Returns the answer to `path`, with what follows a `?`. Must not wait.
    fn to(&self, path: &str, query: &str) -> HttpAnswer;
}

/// An answer, which no client may keep.
#[derive(Debug)]
pub struct HttpAnswer(Response<Full<Bytes>>);

/// The server can't listen at an address.
#[derive(Debug, thiserror::Error)]
#[error("can't listen at {address} ({}){}", .cause.kind(), self.way_out())]
pub struct CantListen {
    address: SocketAddr,
    #[source]
    cause: io::Error,
}

impl HttpServer {
    /// Listens at `address`; port 0 is any free one. Must be called in the context of a runtime.
    pub fn bind(address: SocketAddr) -> Result<Self, CantListen> {
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address, most_connections: CONNECTIONS })
        };
        listen().map_err(|cause| CantListen { address, cause })
    }

    /// Answers requests. A new connection closes the oldest one if there are too many, so that clients that send slowly
    /// or not at all can't keep a probe waiting. Dropped, it closes its connections.
    pub async fn serve(self, answers: &impl HttpAnswers, clock: &Arc<dyn Clock>) -> Infallible {
        let mut connections = FuturesUnordered::new();
        let mut open = BTreeMap::new();
        for number in 0_u64.. {
            let stream = loop {
                tokio::select! {
                    // Connections first: a request that has arrived is answered before its connection is closed.
                    biased;
                    Some(closed) = connections.next() => drop(open.remove(&closed)),
                    accepted = self.listener.accept() => match accepted {
                        Ok((stream, _)) => break stream,
                        Err(_) => clock.sleep(PAUSE).await,
                    },
                }
            };
            if open.len() >= self.most_connections
                && let Some((_, oldest)) = open.pop_first()
            {
                AbortHandle::abort(&oldest);
            }
            let (handle, registration) = AbortHandle::new_pair();
            open.insert(number, handle);
            let connection = Abortable::new(connection(stream, answers, clock), registration);
            connections.push(async move {
                let _ = connection.await;
                number
            });
        }
        unreachable!("a server does not accept 2^64 connections")
    }
}

async fn connection(stream: TcpStream, answers: &impl HttpAnswers, clock: &Arc<dyn Clock>) {
    let answer =
        service_fn(async |request: Request<Incoming>| -> Result<Response<Full<Bytes>>, Infallible> {
            let (is_read, uri) = (matches!(*request.method(), Method::GET | Method::HEAD), request.uri());
            let HttpAnswer(answer) = match is_read {
                true => answers.to(uri.path(), uri.query().unwrap_or_default()),
                false => not_allowed(),
            };
            Ok(answer)
        });
    let mut server = http1::Builder::new();
    // One request each, so that no idle connection takes a place.
    server.keep_alive(false).half_close(true).max_buf_size(HEAD_BYTES).header_read_timeout(None);
    tokio::select! {
        biased;
        _ = server.serve_connection(TokioIo::new(stream), answer) => {}
        () = clock.sleep(TIMEOUT) => {}
    }
}

impl CantListen {
    fn way_out(&self) -> &'static str {
        match self.cause.kind() {
            io::ErrorKind::AddrInUse => {
                ": give each candidate on one machine a port of its own, or port 0 for any that is free"
            }
            io::ErrorKind::AddrNotAvailable => {
                ": name an address of this machine, or 0.0.0.0 for all of them"
            }
            io::ErrorKind::PermissionDenied => ": ports below 1024 are root's: choose another one",
            _ => "",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answers {
    status: Arc<HostStatus>,
    services: Option<primary_only::Registry>,
    pub(crate) metrics: Registry,
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PAGE: &str = include_str!("http/page.html");

const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src 'self' data:";

impl Answers {
    pub(crate) fn new(status: Arc<HostStatus>, services: Option<primary_only::Registry>) -> Self {
        let mut metrics = Registry::default();
        let name = status.candidate.name.clone();
        metrics
            .sub_registry_with_label(("name".into(), name.into()))
            .register_collector(Box::new(HostMetrics(Arc::clone(&status))));
        if let Some(services) = services.clone() {
            metrics.register_collector(Box::new(ServiceMetrics(services)));
        }
        Self { status, services, metrics }
    }

    fn readiness(&self) -> HttpAnswer {
        match self.status.readiness() {
            Ok(()) => text(StatusCode::OK, &format!("ready: {}", self.status.activity())),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {reason}")),
        }
    }

    fn leader(&self) -> HttpAnswer {
        if let Some((leading, margin)) = self.status.leads() {
            let left = margin.as_secs_f64();
            return text(StatusCode::OK, &format!("leading: {leading}, {left:.1} s left"));
        }
        let role = self.status.role();
        let mut lines = match role {
            Role::Idling { .. } => format!("no command runs: {role}"),
            _ => format!("not leading: {}", self.status.activity()),
        };
        for SeenLeader { slot, holder, epoch, ago, .. } in self.status.others() {
            let ago = ago.as_secs_f64();
            // Writing to a String does not fail.
            let _ = write!(lines, "\nslot {slot}: {holder}, epoch {epoch}, seen {ago:.1} s ago");
        }
        text(StatusCode::SERVICE_UNAVAILABLE, &lines)
    }

    fn metrics(&self) -> HttpAnswer {
        let mut out = String::new();
        let _ = encode(&mut out, &self.metrics);
        answer(StatusCode::OK, OPEN_METRICS, out.into())
    }

    fn snapshot(&self) -> HttpAnswer {
        let mut status = self.status.snapshot();
        if let (Value::Object(members), Some(services)) = (&mut status, &self.services) {
            add_status(services, members);
        }
        answer(StatusCode::OK, "application/json", format!("{status}\n").into())
    }
}

impl HttpAnswers for Answers {
    fn to(&self, path: &str, _query: &str) -> HttpAnswer {
        match path {
            "/" => HttpAnswer::page(PAGE),
            "/healthz" => text(StatusCode::OK, "alive"),
            "/readyz" => self.readiness(),
            "/leader" => self.leader(),
            "/metrics" => self.metrics(),
            "/status" => self.snapshot(),
            "/timeline.svg" => HttpAnswer::body("image/svg+xml", self.status.timeline().to_svg()),
            _ => HttpAnswer::not_found("there is / /healthz /readyz /leader /metrics /status /timeline.svg"),
        }
    }
}

impl HttpAnswer {
    /// A page that loads nothing from other servers, and runs no script but its own.
    pub fn page(html: &'static str) -> Self {
        let mut page = answer(StatusCode::OK, "text/html; charset=utf-8", html.into());
        page.0.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
        page
    }

    /// A body of this type.
    pub fn body(content_type: &'static str, body: String) -> Self {
        answer(StatusCode::OK, content_type, body.into())
    }

    /// There is nothing at this path; `advice` says what there is.
    pub fn not_found(advice: &str) -> Self {
        text(StatusCode::NOT_FOUND, advice)
    }
}

fn not_allowed() -> HttpAnswer {
    let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here");
    refusal.0.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refusal
}

fn text(status: StatusCode, text: &str) -> HttpAnswer {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> HttpAnswer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // An answer is true only at the moment of the request.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    HttpAnswer(answer)
}

#[cfg(test)]
mod tests;
