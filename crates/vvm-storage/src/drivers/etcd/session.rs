//! [`Session`]: one connection, driven by the request that uses it. No task runs between requests.
//!
//! gRPC is little on top of HTTP/2: a message is a POST with a prefix of five bytes, and the outcome stands
//! in the trailers.

use super::errors::CallError;
use crate::drivers::connections::Stream;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::{
    RecvStream, SendStream,
    client::{Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use prost::Message;
use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

/// How much a member may send before it waits for us.
const WINDOW: u32 = 1 << 20;

/// No answer to a request of ours is longer: a page of the largest documents.
const LONGEST: usize = 128 << 20;

/// The flag, and the length of the message.
const PREFIX: usize = 5;

pub(super) type Path = &'static str;

pub(super) struct Session {
    send: SendRequest<Bytes>,
    connection: Connection<Box<dyn Stream>, Bytes>,
    pub(super) endpoint: usize,
    authority: String,
}

#[derive(Debug)]
pub(super) struct Streaming {
    /// Dropped, it ends the call.
    _send: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    received: BytesMut,
}

impl Session {
    /// Takes up HTTP/2, and waits for the member's answer to a first frame.
    pub(super) async fn start(
        stream: Box<dyn Stream>,
        endpoint: usize,
        authority: String,
    ) -> Result<Self, h2::Error> {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(4 * WINDOW).enable_push(false);
        let (send, mut connection) = builder.handshake(stream).await?;
        if let Some(mut ping) = connection.ping_pong() {
            let mut pong = pin!(ping.ping(h2::Ping::opaque()));
            poll_fn(|context| match Pin::new(&mut connection).poll(context) {
                Poll::Ready(ended) => Poll::Ready(ended.and(Err(h2::Reason::NO_ERROR.into()))),
                Poll::Pending => pong.as_mut().poll(context).map_ok(drop),
            })
            .await?;
        }
        Ok(Self { send, connection, endpoint, authority })
    }

    /// Whether the member has kept the connection since the last request.
    pub(super) async fn is_open(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut self.connection).poll(context).is_pending())).await
    }

    /// Sends `message` and returns the answer. The member gives up after `within`.
    ///
    /// # Cancel safety
    /// Dropped, the request may be applied, now or later. The session has to be dropped with it.
    pub(super) async fn call<A: Message, B: Message + Default>(
        &mut self,
        path: Path,
        token: Option<&HeaderValue>,
        within: Duration,
        message: &A,
    ) -> Result<B, CallError> {
        let mut request = self.request(path, token)?;
        let timeout = HeaderValue::try_from(format!("{}m", within.as_millis()));
        request.headers_mut().extend(timeout.ok().map(|timeout| (GRPC_TIMEOUT, timeout)));
        let Self { send, connection, .. } = self;
        let call = async {
            let mut send =
                send.clone().ready().await.map_err(|error| CallError::NotSent(described(&error)))?;
            let (response, mut body) = send.send_request(request, false).map_err(not_sent)?;
            // What exceeds the member's window is kept until it asks for more.
            body.send_data(framed(message), true).map_err(broken)?;
            let (head, mut body) = response.await.map_err(broken)?.into_parts();
            check_head(head.status, &head.headers)?;
            let mut received = BytesMut::new();
            while let Some(chunk) = body.data().await {
                take(&mut received, &mut body, chunk)?;
            }
            let trailers = body.trailers().await.map_err(broken)?.unwrap_or_default();
            status(&trailers)?.unwrap_or_else(|| Err(broken("an answer without a status")))?;
            unframed(&mut received)?.ok_or_else(|| broken("an answer without a message"))
        };
        drive(connection, call).await
    }

    pub(super) async fn stream<A: Message>(
        &mut self,
        path: Path,
        token: Option<&HeaderValue>,
        messages: &[A],
    ) -> Result<Streaming, CallError> {
        let request = self.request(path, token)?;
        let Self { send, connection, .. } = self;
        let call = async {
            let mut send = send.clone().ready().await.map_err(not_sent)?;
            let (response, mut send) = send.send_request(request, false).map_err(not_sent)?;
            for message in messages {
                send.send_data(framed(message), false).map_err(broken)?;
            }
            Ok(Streaming { _send: send, response: Some(response), body: None, received: BytesMut::new() })
        };
        drive(connection, call).await
    }

    /// Waits for the next message of a call.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(super) async fn next<B: Message + Default>(&mut self, call: &mut Streaming) -> Result<B, CallError> {
        drive(&mut self.connection, call.next()).await
    }

    /// Takes leave of the member.
    pub(super) async fn end(self) {
        let Self { send, mut connection, .. } = self;
        drop(send);
        // Once: it sends the message, and does not wait for the member.
        let farewell = poll_fn(|context| Poll::Ready(Pin::new(&mut connection).poll(context)));
        let _gone = farewell.await;
    }

    fn request(&self, path: Path, token: Option<&HeaderValue>) -> Result<Request<()>, CallError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("{}{path}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = token {
            request = request.header("token", token);
        }
        request.body(()).map_err(not_sent)
    }
}

impl Streaming {
    async fn next<B: Message + Default>(&mut self) -> Result<B, CallError> {
        // Each await stands on a state that is kept here, so that a drop loses nothing.
        if let Some(response) = &mut self.response {
            let (head, body) = response.await.map_err(broken)?.into_parts();
            (self.response, self.body) = (None, Some(body));
            check_head(head.status, &head.headers)?;
        }
        let Some(body) = &mut self.body else { return Err(broken("no body")) };
        loop {
            if let Some(message) = unframed(&mut self.received)? {
                return Ok(message);
            }
            match body.data().await {
                Some(chunk) => take(&mut self.received, body, chunk)?,
                None => return Err(broken("the member ended the call")),
            }
        }
    }
}

const GRPC_TIMEOUT: http::HeaderName = http::HeaderName::from_static("grpc-timeout");

/// Moves frames in both directions until `call` is done.
async fn drive<T>(
    connection: &mut Connection<Box<dyn Stream>, Bytes>,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let (mut call, mut ended) = (pin!(call), None);
    poll_fn(|context: &mut Context<'_>| {
        loop {
            // It queues frames that the connection then sends, and takes those that it received.
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            if let Some(why) = ended.take() {
                return Poll::Ready(Err(CallError::Broken(why)));
            }
            match Pin::new(&mut *connection).poll(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => ended = Some("the member closed the connection".to_owned()),
                Poll::Ready(Err(error)) => ended = Some(described(&error)),
            }
            if ended.is_none() {
                return call.as_mut().poll(context);
            }
        }
    })
    .await
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    // No request of ours is longer than 4 GiB.
    frame.put_u32(length as u32);
    // The buffer has room for it.
    message.encode_raw(&mut frame);
    frame.freeze()
}

/// `None` if it is not complete.
fn unframed<B: Message + Default>(received: &mut BytesMut) -> Result<Option<B>, CallError> {
    let Some((prefix, rest)) = received.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let [flag, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    if flag != 0 || length > LONGEST {
        return Err(broken("a message that is compressed or too long"));
    }
    if rest.len() < length {
        return Ok(None);
    }
    received.advance(PREFIX);
    B::decode(received.split_to(length).freeze()).map(Some).map_err(broken)
}

fn take(
    received: &mut BytesMut,
    body: &mut RecvStream,
    chunk: Result<Bytes, h2::Error>,
) -> Result<(), CallError> {
    let chunk = chunk.map_err(broken)?;
    received.extend_from_slice(&chunk);
    if received.len() > LONGEST {
        return Err(broken("an answer that is too long"));
    }
    body.flow_control().release_capacity(chunk.len()).map_err(broken)
}

/// An answer without a body has its status here.
fn check_head(code: StatusCode, headers: &HeaderMap) -> Result<(), CallError> {
    match status(headers)? {
        Some(status) => status,
        None if code == StatusCode::OK => Ok(()),
        None => Err(broken(format!("HTTP status {code}, which is not gRPC"))),
    }
}

fn status(headers: &HeaderMap) -> Result<Option<Result<(), CallError>>, CallError> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()));
    let Some(code) = text("grpc-status") else { return Ok(None) };
    match code.parse() {
        Ok(0) => Ok(Some(Ok(()))),
        Ok(code) => {
            let message = text("grpc-message").unwrap_or_default().into_owned();
            Ok(Some(Err(CallError::Status { code, message })))
        }
        Err(_) => Err(broken("a status that is no number")),
    }
}

fn not_sent(why: impl ToString) -> CallError {
    CallError::NotSent(why.to_string())
}

fn broken(why: impl ToString) -> CallError {
    CallError::Broken(why.to_string())
}

/// The cause of an error of HTTP/2: that of the connection says more than its own text.
pub(super) fn described(error: &h2::Error) -> String {
    error.get_io().map_or_else(|| error.to_string(), ToString::to_string)
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Session({})", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::etcd::messages::AuthenticateRequest;

    #[test]
    fn message_survives_its_frame_in_any_pieces() {
        let message = AuthenticateRequest { name: "me".into(), password: "secret".into() };
        let frame = framed(&message);
        let mut received = BytesMut::new();
        for at in 0..frame.len() {
            assert_eq!(unframed::<AuthenticateRequest>(&mut received), Ok(None));
            received.extend_from_slice(&frame[at..=at]);
        }
        received.extend_from_slice(&frame);
        assert_eq!(unframed(&mut received), Ok(Some(message.clone())));
        assert_eq!(unframed(&mut received), Ok(Some(message)));
        assert!(received.is_empty());
    }

    #[test]
    fn frame_that_makes_no_sense_is_refused() {
        for frame in [&[1, 0, 0, 0, 0][..], &[0, 255, 255, 255, 255], &[0, 0, 0, 0, 1, 7]] {
            let refused = unframed::<AuthenticateRequest>(&mut BytesMut::from(frame));
            assert!(matches!(refused, Err(CallError::Broken(_))), "{frame:?}");
        }
    }
}
