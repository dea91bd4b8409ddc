//! [`Dialect`]: what a proxy must know of a server's requests and answers, to forge some.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Method, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    http::{request, response},
};
use prost::Message;
use std::io;

/// A server's use of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::faults) enum Dialect {
    /// DynamoDB: the operation is a header.
    DynamoDb,
    /// S3: objects are put with conditions.
    S3,
    /// Kubernetes: objects are put with their version.
    Kubernetes,
    /// etcd: gRPC over HTTP 2. Only transactions write.
    Etcd,
}

/// The body of a request or an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

const OPERATION: HeaderName = HeaderName::from_static("x-amz-target");
const REFUSED_BY_DYNAMODB: &str = "ConditionalCheckFailedException";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The compression flag and the length before each message of gRPC.
const GRPC_PREFIX: usize = 5;

/// A request, as far as a proxy has to understand it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Reads,
    Writes,
    /// Depends on the body.
    Transaction,
    /// Question and answer go on for as long as the client wants.
    Stream,
}

impl Operation {
    pub(super) fn of(dialect: Dialect, head: &request::Parts) -> Self {
        let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&head.method);
        match dialect {
            Dialect::DynamoDb => {
                let target = head.headers.get(OPERATION).and_then(|target| target.to_str().ok());
                let operation = target.and_then(|target| target.rsplit('.').next());
                match operation {
                    Some("PutItem" | "UpdateItem" | "DeleteItem") => Self::Writes,
                    _ => Self::Reads,
                }
            }
            Dialect::Etcd if head.uri.path() == "/etcdserverpb.KV/Txn" => Self::Transaction,
            Dialect::Etcd if head.uri.path() == "/etcdserverpb.Watch/Watch" => Self::Stream,
            Dialect::Etcd => Self::Reads,
            Dialect::Kubernetes if head.uri.query().is_some_and(|query| query.contains("watch=")) => {
                Self::Stream
            }
            Dialect::S3 | Dialect::Kubernetes if changes => Self::Writes,
            Dialect::S3 | Dialect::Kubernetes => Self::Reads,
        }
    }

    pub(super) fn is_stream(self) -> bool {
        self == Self::Stream
    }

    /// Whether it changes something, if it is not a stream. Returns the body, too.
    pub(super) async fn writes(self, body: Body) -> (Body, bool) {
        if self != Self::Transaction {
            return (body, self == Self::Writes);
        }
        let Ok(read) = body.collect().await else { return (full(Bytes::new()), false) };
        let bytes = read.to_bytes();
        let transaction = Transaction::decode(bytes.get(GRPC_PREFIX..).unwrap_or_default());
        let writes = transaction.is_ok_and(|transaction| transaction.writes());
        (full(bytes), writes)
    }
}

/// The writes of a transaction of etcd, if its comparisons hold.
#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "2")]
    operations: Vec<TransactionRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct TransactionRequest {
    #[prost(bytes = "bytes", optional, tag = "2")]
    put: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    delete: Option<Bytes>,
}

impl Transaction {
    fn writes(&self) -> bool {
        self.operations.iter().any(|request| request.put.is_some() || request.delete.is_some())
    }
}

/// The answer to a transaction.
#[derive(Clone, PartialEq, Message)]
struct Outcome {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

/// A whole answer.
pub(super) struct Answer {
    head: response::Parts,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Answer {
    /// `None` if it is cut short.
    pub(super) async fn read(answer: Response<Incoming>) -> Option<Self> {
        let (head, body) = answer.into_parts();
        let body = body.collect().await.ok()?;
        let trailers = body.trailers().cloned();
        Some(Self { head, body: body.to_bytes(), trailers })
    }

    /// Whether a conditional write was applied. `None` if the answer does not tell.
    pub(super) fn applied(&self, dialect: Dialect) -> Option<bool> {
        match (dialect, self.head.status.as_u16()) {
            (Dialect::Etcd, 200) => {
                let is_ok = self.trailers.as_ref()?.get(GRPC_STATUS)? == "0";
                let outcome = Outcome::decode(self.body.get(GRPC_PREFIX..)?).ok()?;
                is_ok.then_some(outcome.succeeded)
            }
            (Dialect::Etcd, _) => None,
            (_, 200 | 201 | 204) => Some(true),
            (Dialect::DynamoDb, 400) => {
                String::from_utf8_lossy(&self.body).contains(REFUSED_BY_DYNAMODB).then_some(false)
            }
            (Dialect::S3, 404 | 409 | 412) | (Dialect::Kubernetes, 404 | 409) => Some(false),
            _ => None,
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let trailers = self.trailers;
        let body = full(self.body).with_trailers(async { trailers.map(Ok) });
        Response::from_parts(self.head, body.boxed_unsync())
    }
}

/// A body that goes on.
pub(super) fn stream(body: Incoming) -> Body {
    body.map_err(io::Error::other).boxed_unsync()
}

/// A body that was received to its end.
pub(super) async fn whole(body: Incoming) -> io::Result<Body> {
    let read = body.collect().await.map_err(io::Error::other)?;
    Ok(read.map_err(|never| match never {}).boxed_unsync())
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

impl Dialect {
    pub(super) fn is_http2(self) -> bool {
        self == Self::Etcd
    }

    /// The answer of a server that does not know the outcome of a write.
    pub(super) fn internal_error(self) -> Response<Body> {
        match self {
            Self::DynamoDb => Self::of_dynamodb(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
            Self::S3 => Self::of_s3(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Self::Kubernetes => Self::of_kubernetes(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Self::Etcd => Self::of_etcd("14", "etcdserver: request timed out"),
        }
    }

    /// The answer of a server that has too many requests, and has not applied this one.
    pub(super) fn throttled(self) -> Response<Body> {
        match self {
            Self::DynamoDb => {
                Self::of_dynamodb(StatusCode::BAD_REQUEST, "ProvisionedThroughputExceededException")
            }
            Self::S3 => Self::of_s3(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            Self::Kubernetes => Self::of_kubernetes(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::Etcd => Self::of_etcd("8", "etcdserver: too many requests"),
        }
    }

    fn of_dynamodb(status: StatusCode, kind: &str) -> Response<Body> {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{kind}");
        let body = format!("{{\"__type\":\"{kind}\",\"message\":\"forged\"}}");
        forged(status, "application/x-amz-json-1.0", body)
    }

    fn of_s3(status: StatusCode, code: &str) -> Response<Body> {
        let body = format!("<Error><Code>{code}</Code><Message>forged</Message></Error>");
        forged(status, "application/xml", body)
    }

    fn of_kubernetes(status: StatusCode, reason: &str) -> Response<Body> {
        let code = status.as_u16();
        let body = format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"forged\",\
             \"reason\":\"{reason}\",\"code\":{code}}}"
        );
        forged(status, "application/json", body)
    }

    fn of_etcd(code: &'static str, message: &'static str) -> Response<Body> {
        let mut answer = forged(StatusCode::OK, "application/grpc", String::new());
        let values = [(GRPC_STATUS, code), (GRPC_MESSAGE, message)];
        for (name, value) in values {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

fn forged(status: StatusCode, content: &'static str, body: String) -> Response<Body> {
    let mut answer = Response::new(full(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(dialect: Dialect, method: Method, path: &str) -> Operation {
        let request = hyper::Request::builder().method(method).uri(path).body(()).unwrap();
        Operation::of(dialect, &request.into_parts().0)
    }

    #[tokio::test]
    async fn writes_are_recognized() {
        let put =
            Transaction { operations: vec![TransactionRequest { put: Some(Bytes::new()), delete: None }] };
        let framed = |message: &Transaction| [&[0; GRPC_PREFIX], message.encode_to_vec().as_slice()].concat();
        let get = Transaction { operations: vec![TransactionRequest { put: None, delete: None }] };
        let path = "/etcdserverpb.KV/Txn";
        for (message, expected) in [(put, true), (get, false)] {
            let body = full(framed(&message).into());
            let (body, writes) = asks(Dialect::Etcd, Method::POST, path).writes(body).await;
            assert_eq!(writes, expected);
            assert_eq!(body.collect().await.unwrap().to_bytes(), framed(&message));
        }
        let table = [
            (Dialect::S3, Method::PUT, "/bucket/key", true),
            (Dialect::S3, Method::GET, "/bucket/key", false),
            (Dialect::Kubernetes, Method::PUT, "/apis/leases/a", true),
            (Dialect::Kubernetes, Method::GET, "/apis/leases/a", false),
            (Dialect::DynamoDb, Method::POST, "/", false),
        ];
        for (dialect, method, path, expected) in table {
            let (_, writes) = asks(dialect, method, path).writes(full(Bytes::new())).await;
            assert_eq!(writes, expected, "{dialect:?} {path}");
        }
        assert!(asks(Dialect::Kubernetes, Method::GET, "/apis/leases?watch=1").is_stream());
        assert!(asks(Dialect::Etcd, Method::POST, "/etcdserverpb.Watch/Watch").is_stream());
    }

    async fn answer(response: Response<Body>) -> Answer {
        let (head, body) = response.into_parts();
        Answer { head, body: body.collect().await.unwrap().to_bytes(), trailers: None }
    }

    #[tokio::test]
    async fn forged_answers_do_not_tell_an_outcome() {
        for dialect in [Dialect::DynamoDb, Dialect::S3, Dialect::Kubernetes, Dialect::Etcd] {
            for forged in [dialect.internal_error(), dialect.throttled()] {
                assert_eq!(answer(forged).await.applied(dialect), None, "{dialect:?}");
            }
        }
        let refused = Dialect::of_dynamodb(StatusCode::BAD_REQUEST, REFUSED_BY_DYNAMODB);
        assert_eq!(answer(refused).await.applied(Dialect::DynamoDb), Some(false));
    }
}
