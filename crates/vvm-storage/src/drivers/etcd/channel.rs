//! [`Channel`]: HTTP/2 to one member, for all requests of a handle. tonic speaks gRPC on it, hyper's tasks move frames.

use super::CallError;
use crate::drivers::connection::Stream;
use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::BoxFuture,
    stream::{iter, pending},
};
use http::uri::PathAndQuery;
use http_body_util::{BodyExt as _, combinators::MapFrame};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use prost::Message;
use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use tokio::task::JoinSet;
use tonic::{
    Request,
    body::Body,
    client::{Grpc, GrpcService},
    metadata::{Ascii, MetadataValue},
};
use tonic_prost::ProstCodec;

/// How much a member may send before it waits for us.
const WINDOW: u32 = 1 << 20;

/// No answer to a request of ours is longer: a page of the largest documents.
const LONGEST: usize = 128 << 20;

pub(super) type Path = &'static str;

pub(super) type LoginToken = MetadataValue<Ascii>;

pub(super) type Answers<B> = tonic::Streaming<B>;

/// A connection to a member. Dropped, it is closed, and its tasks end: requests hold it until they are answered.
pub(super) struct Channel {
    requests: RequestSender,
    pub(super) endpoint: usize,
    origin: http::Uri,
    tasks: Tasks,
}

impl Channel {
    /// Takes up HTTP/2. What the peer speaks is known after the first answer.
    pub(super) async fn start(
        stream: Box<dyn Stream>,
        endpoint: usize,
        origin: http::Uri,
    ) -> Result<Self, CallError> {
        let tasks = Tasks::default();
        let mut builder = http2::Builder::new(tasks.clone());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(4 * WINDOW);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| CallError::here(&error))?;
        tasks.spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to etcd has ended");
            }
        });
        Ok(Self { requests: RequestSender(sender), endpoint, origin, tasks })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.requests.0.is_closed()
    }

    /// Sends `message` once and returns the answer. The member gives up after `within`.
    /// Dropped, the request may be applied, now or later.
    pub(super) async fn call<A: Message + Clone + 'static, B: Message + Default + 'static>(
        &self,
        path: Path,
        token: Option<&LoginToken>,
        within: Duration,
        message: &A,
    ) -> Result<B, CallError> {
        let mut request = with_token(message.clone(), token);
        request.set_timeout(within);
        let mut grpc = self.ready().await?;
        let answer =
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<A, B>::default()).await;
        Ok(answer?.into_inner())
    }

    /// Begins a call that sends these messages, and ends if the member has no leader. Returns with the head of the answer.
    /// Dropped, the call is cancelled, and so it is with its answers.
    pub(super) async fn stream<A: Message + 'static, B: Message + Default + 'static>(
        &self,
        path: Path,
        token: Option<&LoginToken>,
        messages: Vec<A>,
    ) -> Result<Answers<B>, CallError> {
        let mut request = with_token(iter(messages).chain(pending()), token);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut grpc = self.ready().await?;
        let answers =
            grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::<A, B>::default()).await;
        Ok(answers?.into_inner())
    }

    pub(super) async fn close(&self) {
        self.tasks.shutdown().await;
    }

    async fn ready(&self) -> Result<Grpc<RequestSender>, CallError> {
        let grpc = Grpc::with_origin(self.requests.clone(), self.origin.clone());
        let mut grpc = grpc.max_decoding_message_size(LONGEST);
        grpc.ready().await.map_err(|closed| CallError::NotSent(closed.to_string()))?;
        Ok(grpc)
    }
}

fn with_token<M>(message: M, token: Option<&LoginToken>) -> Request<M> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.clone());
    }
    request
}

impl Drop for Channel {
    /// A peer that is silent takes no farewell, so that hyper's tasks could wait for it.
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Channel({})", self.origin)
    }
}

/// The tasks of one connection. hyper spawns one for the frames, and one for each long request body.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn abort_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

#[derive(Clone)]
struct RequestSender(SendRequest<Body>);

type BoxError = Box<dyn Error + Send + Sync>;

type IncomingBody = MapFrame<Incoming, fn(Frame<Bytes>) -> Frame<Bytes>>;

impl GrpcService<Body> for RequestSender {
    type ResponseBody = IncomingBody;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<http::Response<IncomingBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.send_request(request);
        Box::pin(async {
            let (mut head, body) = answer.await?.into_parts();
            // tonic makes statuses of etcd of these, and a proxy knows nothing of what was applied.
            if head.status != http::StatusCode::OK {
                return Err(format!("HTTP status {}, which is not gRPC", head.status).into());
            }
            head.headers.remove(DETAILS);
            Ok(http::Response::from_parts(head, body.map_frame(without_details as _)))
        })
    }
}

/// tonic 0.14 panics at details that are not base64. etcd sends none.
const DETAILS: &str = "grpc-status-details-bin";

fn without_details(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        trailers.remove(DETAILS);
    }
    frame
}

impl From<tonic::Status> for CallError {
    /// A status with a source was made on this side.
    fn from(status: tonic::Status) -> Self {
        match status.source() {
            Some(source) => Self::here(source),
            None => Self::Status { code: status.code() as i32, message: status.message().to_owned() },
        }
    }
}

impl CallError {
    /// Of an error of hyper or of this module. The innermost text says most.
    fn here(error: &(dyn Error + 'static)) -> Self {
        let causes = || std::iter::successors(Some(error), |&error| error.source());
        let why = causes().last().unwrap_or(error).to_string();
        match causes().find_map(|cause| cause.downcast_ref::<h2::Error>()) {
            Some(of_http2) if !of_http2.is_io() => Self::Broken(why),
            None if !causes().any(|cause| cause.is::<hyper::Error>()) => Self::Broken(why),
            _ => Self::Disconnected(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::messages::{StatusRequest, StatusResponse},
        *,
    };
    use tokio::io::{AsyncReadExt as _, duplex};

    /// What a client says first in HTTP/2, before its first frame.
    const PREFACE: usize = 24;

    /// (I9) The peer has taken the preface, and then nothing.
    #[tokio::test]
    async fn silent_peer_holds_up_no_end_of_a_channel() {
        for is_closed in [true, false] {
            let (ours, mut theirs) = duplex(PREFACE);
            let origin = http::Uri::from_static("http://silent");
            let channel = Channel::start(Box::new(ours), 0, origin).await.unwrap();
            let tasks = channel.tasks.clone();
            if is_closed {
                channel.close().await;
            }
            drop(channel);
            let mut left = std::mem::take(&mut *tasks.0.lock().unwrap());
            assert!(!is_closed || left.is_empty());
            while left.join_next().await.is_some() {}
            // Only now does the peer read on.
            theirs.read_to_end(&mut Vec::new()).await.unwrap();
        }
    }

    /// A member that is cut off from the others tells a watch nothing, and does not end it unasked.
    #[tokio::test]
    async fn stream_asks_the_member_to_end_it_without_a_leader() {
        let (ours, theirs) = duplex(1 << 16);
        let origin = http::Uri::from_static("http://member");
        let channel = Channel::start(Box::new(ours), 0, origin).await.unwrap();
        let accepting = async {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            connection.accept().await.unwrap().unwrap().0
        };
        let stream = channel.stream::<StatusRequest, StatusResponse>("/a", None, Vec::new());
        let asked = tokio::select! { asked = accepting => asked, ended = stream => panic!("{ended:?}") };
        assert_eq!(asked.headers()["hasleader"], "true");
    }

    #[test]
    fn status_is_of_the_member_only_if_this_side_did_not_make_it() {
        let shown = |status| CallError::from(status);
        let of_member = tonic::Status::permission_denied("no");
        assert_eq!(shown(of_member), CallError::Status { code: 7, message: "no".into() });
        let here = tonic::Status::from_error("cut".into());
        assert_eq!(shown(here), CallError::Broken("cut".into()));
    }
}
