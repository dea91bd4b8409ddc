//! Requests over HTTP between a candidate and a server: forwarded, delayed, or answered by the proxy.
//!
//! What a client sent just before it closed is forwarded, too.

mod dialect;
mod upstream;

pub(in crate::faults) use dialect::Dialect;
pub(in crate::faults) use upstream::Tls;

use super::{ConnectionContext, Link};
use crate::faults::fault::Event;
use dialect::{Answer, Body, Operation};
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::graceful::GracefulConnection,
};
use std::{io, pin::pin};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use upstream::Upstream;

/// The forged answer to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forged {
    /// An error of the server: the outcome is unknown.
    Internal,
    /// The connection or the stream ends without an answer.
    Lost,
    /// "Too many requests": the write was not applied, so the proxy does not send it.
    Throttled,
}

/// A request of the client, and where its answer goes. Dropping that ends the request without an answer.
struct Job {
    request: Request<Body>,
    answer: oneshot::Sender<Response<Body>>,
}

/// Forwards everything until one side has ended.
pub(super) async fn relay(
    client: TcpStream,
    server: TcpStream,
    context: ConnectionContext,
    dialect: Dialect,
    tls: Option<Tls>,
) {
    let Some((upstream, connection)) = Upstream::handshake(server, dialect, tls).await else { return };
    let (jobs, mut received) = mpsc::unbounded_channel();
    let service = service_fn(move |request| handle(request, dialect, jobs.clone()));
    let client = TokioIo::new(client);
    // Neither is `Unpin`, and each protocol has a type of its own.
    if dialect.is_http2() {
        let serving = http2::Builder::new(TokioExecutor::new()).serve_connection(client, service);
        run(serving, connection, &mut received, &upstream, &context, dialect).await;
    } else {
        let serving = http1::Builder::new().serve_connection(client, service);
        run(serving, connection, &mut received, &upstream, &context, dialect).await;
    }
}

/// Runs both connections until the client's has ended and each of its requests was forwarded. When the server
/// ends its connection, the client's is ended after the answers under way.
async fn run(
    serving: impl GracefulConnection,
    connection: impl Future<Output = ()>,
    received: &mut mpsc::UnboundedReceiver<Job>,
    upstream: &Upstream,
    context: &ConnectionContext,
    dialect: Dialect,
) {
    let (mut serving, mut connection) = (pin!(serving), pin!(connection));
    // Requests are answered by tasks of this set: the client's connection drops a request when it closes.
    let mut jobs = JoinSet::new();
    let (mut is_client_there, mut is_server_there) = (true, true);
    loop {
        tokio::select! {
            biased;
            Some(job) = received.recv() => {
                jobs.spawn(answer(job, upstream.clone(), context.clone(), dialect));
            }
            Some(_answered) = jobs.join_next() => {}
            () = &mut connection, if is_server_there => {
                is_server_there = false;
                serving.as_mut().graceful_shutdown();
            }
            _ended = &mut serving, if is_client_there => is_client_there = false,
        }
        if !is_client_there && jobs.is_empty() && received.is_empty() {
            return;
        }
    }
}

async fn handle(
    request: Request<Incoming>,
    dialect: Dialect,
    jobs: mpsc::UnboundedSender<Job>,
) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let operation = Operation::of(dialect, &head);
    let body = if operation.is_stream() { dialect::stream(body) } else { dialect::whole(body).await? };
    let (answer, answered) = oneshot::channel();
    let lost = || io::Error::from(io::ErrorKind::ConnectionReset);
    jobs.send(Job { request: Request::from_parts(head, body), answer }).map_err(|_| lost())?;
    answered.await.map_err(|_| lost())
}

/// Forwards a request or forges its answer.
async fn answer(job: Job, upstream: Upstream, mut context: ConnectionContext, dialect: Dialect) {
    let Job { request, answer } = job;
    let (head, body) = request.into_parts();
    let operation = Operation::of(dialect, &head);
    let (body, writes) = if operation.is_stream() { (body, false) } else { operation.writes(body).await };
    let forged = (writes && context.forges()).then(|| {
        let kinds = [Forged::Internal, Forged::Lost, Forged::Throttled];
        kinds[fastrand::usize(..kinds.len())]
    });
    let counts = context.counts.clone();
    let given = match forged {
        Some(Forged::Throttled) => {
            counts.add(Event::Throttled);
            Some(dialect.throttled())
        }
        Some(forged) if fastrand::bool() => {
            counts.add(Event::ForgedUnsent);
            (forged == Forged::Internal).then(|| dialect.internal_error())
        }
        forged => {
            if context.now().link == Link::Silent {
                context.arrival().await;
                if writes {
                    counts.add(Event::WriteDelivered);
                }
            }
            let Some(received) = upstream.ask(Request::from_parts(head, body)).await else { return };
            if operation.is_stream() {
                Some(received.map(dialect::stream))
            } else {
                let Some(received) = Answer::read(received).await else { return };
                match (forged, received.applied(dialect)) {
                    (Some(forged), Some(applied)) => {
                        counts.add(if applied { Event::ForgedApplied } else { Event::ForgedRefused });
                        (forged == Forged::Internal).then(|| dialect.internal_error())
                    }
                    // The server's own errors are forwarded.
                    _ => Some(received.into_response()),
                }
            }
        }
    };
    if context.now().link != Link::Open {
        context.arrival().await;
        counts.add(Event::AnswerDelayed);
    }
    if let Some(given) = given {
        // The client may have closed the connection.
        let _gone = answer.send(given);
    }
}
