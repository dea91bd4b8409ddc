//! [`Protocol`]: how a proxy recognizes a write in each protocol, and the bytes of forged answers to one.

use super::Tls;
use ielections::Incarnation;

#[derive(Clone)]
pub(crate) enum Protocol {
    Cql,
    DynamoDb,
    /// gRPC over HTTP 2.
    Etcd,
    Kubernetes(Tls),
    Mysql,
    Postgres,
    S3,
}

#[derive(Debug)]
pub(super) struct Forgery {
    /// Whether the server gets the write, too.
    pub(super) is_sent: bool,
    pub(super) bytes: Vec<u8>,
    /// The bytes come before the server's own answer, and do not replace it.
    pub(super) precedes: bool,
    pub(super) closes: bool,
}

impl Protocol {
    pub(super) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Kubernetes(tls) => Some(tls),
            _ => None,
        }
    }

    /// Returns whether bytes of a client are a write. In protocols without a readable verb, a write is recognized by
    /// the `incarnation` of the leadership that it is for: reads do not contain it.
    pub(super) fn is_write(&self, bytes: &[u8], incarnation: Option<&Incarnation>) -> bool {
        match self {
            Self::Cql | Self::Etcd | Self::Postgres => {
                incarnation.is_some_and(|incarnation| find(bytes, incarnation.as_bytes()).is_some())
            }
            // The statement is text, with bytes as hexadecimal digits.
            Self::Mysql => incarnation.is_some_and(|incarnation| {
                let digits: String =
                    incarnation.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                find(bytes, digits.as_bytes()).is_some()
            }),
            Self::DynamoDb => [".PutItem", ".UpdateItem", ".DeleteItem"]
                .iter()
                .any(|operation| find(bytes, operation.as_bytes()).is_some()),
            Self::Kubernetes(_) | Self::S3 => ["POST ", "PUT ", "PATCH ", "DELETE "]
                .iter()
                .any(|method| bytes.starts_with(method.as_bytes())),
        }
    }

    pub(super) fn forge(&self, request: &[u8], incarnation: Option<&Incarnation>) -> Forgery {
        let at = || find(request, incarnation?.as_bytes());
        let unknown = fastrand::bool();
        let ends = |is_sent, bytes| Forgery { is_sent, bytes, precedes: false, closes: true };
        let goes_on = |is_sent, bytes| Forgery { is_sent, bytes, precedes: false, closes: false };
        let lost = ends(unknown, Vec::new());
        // 0: the answer and the connection are lost. 1: an error that leaves the outcome open. 2: an error that says
        // that the write was not applied.
        match (self, fastrand::u8(..3)) {
            (Self::Cql, kind) => goes_on(unknown, cql(request, at(), kind == 0)),
            (_, 0) => lost,
            (Self::Postgres, 1) => match fastrand::bool() {
                true => ends(unknown, postgres(b'E', "FATAL", "57P01", "terminating connection")),
                // Success, with this warning.
                false => Forgery {
                    precedes: true,
                    ..goes_on(true, postgres(b'N', "WARNING", "01000", NOT_REPLICATED))
                },
            },
            (Self::Postgres, _) => {
                let refusal = postgres(b'E', "ERROR", "55P03", "canceling statement due to lock timeout");
                goes_on(false, [&refusal[..], b"Z\0\0\0\x05I"].concat())
            }
            (Self::Mysql, 1) => ends(unknown, mysql(1317, "70100", "Query execution was interrupted")),
            (Self::Mysql, _) => ends(false, mysql(1205, "HY000", "Lock wait timeout exceeded; try again")),
            (Self::Etcd, 1) => ends(unknown, etcd(request, at(), "14", "etcdserver: request timed out")),
            (Self::Etcd, _) => ends(false, etcd(request, at(), "8", "etcdserver: too many requests")),
            (Self::DynamoDb, 1) => {
                ends(unknown, dynamodb("500 Internal Server Error", "InternalServerError"))
            }
            (Self::DynamoDb, _) => {
                ends(false, dynamodb("400 Bad Request", "ProvisionedThroughputExceededException"))
            }
            (Self::S3, 1) => ends(unknown, s3("500 Internal Server Error", "InternalError")),
            (Self::S3, _) => ends(false, s3("503 Slow Down", "SlowDown")),
            (Self::Kubernetes(_), 1) => ends(unknown, kubernetes(500, "InternalError")),
            (Self::Kubernetes(_), _) => ends(false, kubernetes(429, "TooManyRequests")),
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

const NOT_REPLICATED: &str = "canceling wait for synchronous replication due to user request";

/// A refusal or a notice. The severity comes twice: in the server's language, and in English.
fn postgres(letter: u8, severity: &str, code: &str, what: &str) -> Vec<u8> {
    let fields = format!("S{severity}\0V{severity}\0C{code}\0M{what}\0\0");
    [&[letter], &(fields.len() as u32 + 4).to_be_bytes()[..], fields.as_bytes()].concat()
}

/// A refusal, as the answer to the first packet of a request.
fn mysql(code: u16, state: &str, what: &str) -> Vec<u8> {
    let refusal = [&[0xff], &code.to_le_bytes()[..], b"#", state.as_bytes(), what.as_bytes()].concat();
    [&[refusal.len() as u8, 0, 0, 1], &refusal[..]].concat()
}

/// Returns the header of the frame that contains the byte at `at`. Headers have nine bytes.
fn frame_at(mut frames: &[u8], at: Option<usize>, length: impl Fn(&[u8; 9]) -> usize) -> Option<[u8; 9]> {
    let mut left = at?;
    loop {
        let header = frames.first_chunk::<9>()?;
        let whole = 9 + length(header);
        if left < whole {
            return Some(*header);
        }
        (frames, left) = (frames.get(whole..)?, left - whole);
    }
}

/// An error frame for the stream of the request: a write that timed out, of type `CAS`, or a transaction of
/// unknown outcome. Empty if the frame of the request is not found.
fn cql(request: &[u8], at: Option<usize>, times_out: bool) -> Vec<u8> {
    let length = |header: &[u8; 9]| u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize;
    let Some([version, _, one, two, ..]) = frame_at(request, at, length) else { return Vec::new() };
    // Code, message, consistency `SERIAL`; one replica of two has answered.
    let body: &[u8] = match times_out {
        true => b"\0\0\x11\0\0\x06forged\0\x08\0\0\0\x01\0\0\0\x02\0\x03CAS",
        false => b"\0\0\x17\0\0\x06forged\0\x08\0\0\0\x01\0\0\0\x02",
    };
    [&[version | 0x80, 0, one, two, 0], &(body.len() as u32).to_be_bytes()[..], body].concat()
}

/// Headers that are the whole answer to the stream of the request: a status of gRPC and its message, all literal.
fn etcd(request: &[u8], at: Option<usize>, status: &str, message: &str) -> Vec<u8> {
    let length = |header: &[u8; 9]| u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    // The preface of a connection, of 24 bytes, comes before its first frame.
    let first = if request.starts_with(b"PRI ") { 24 } else { 0 };
    let at = at.and_then(|at| at.checked_sub(first));
    let Some([.., a, b, c, d]) = frame_at(request.get(first..).unwrap_or_default(), at, length) else {
        return Vec::new();
    };
    // `:status: 200`, of the static table.
    let mut block = vec![0x88];
    let fields = [("content-type", "application/grpc"), ("grpc-status", status), ("grpc-message", message)];
    for text in fields.into_iter().flat_map(|(name, value)| ["", name, value]) {
        // An empty text stands for the byte that a literal begins with; a length has one byte.
        block.push(text.len() as u8);
        block.extend(text.as_bytes());
    }
    // Headers, and the end of headers and stream.
    [&[0, 0, block.len() as u8, 1, 0x05, a, b, c, d], &block[..]].concat()
}

fn http(status: &str, content: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {content}\r\ncontent-length: {length}");
    format!("{head}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

fn dynamodb(status: &str, kind: &str) -> Vec<u8> {
    let kind = format!("com.amazonaws.dynamodb.v20120810#{kind}");
    http(status, "application/x-amz-json-1.0", &format!("{{\"__type\":\"{kind}\",\"message\":\"forged\"}}"))
}

fn s3(status: &str, code: &str) -> Vec<u8> {
    http(status, "application/xml", &format!("<Error><Code>{code}</Code><Message>forged</Message></Error>"))
}

fn kubernetes(code: u16, reason: &str) -> Vec<u8> {
    let body = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"forged\",\
         \"reason\":\"{reason}\",\"code\":{code}}}"
    );
    http(&format!("{code} Forged"), "application/json", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_recognized() {
        let incarnation = Incarnation::from_bytes([7; 16]);
        let with = [b"SELECT", &[7; 16][..]].concat();
        for (protocol, write, read) in [
            (Protocol::Postgres, &with[..], &b"SELECT"[..]),
            (Protocol::Mysql, b"\x03UPDATE t SET i = x'07070707070707070707070707070707'", b"\x03SELECT 1"),
            (Protocol::S3, b"PUT /bucket/key", b"GET /bucket/key"),
            (Protocol::DynamoDb, b"x-amz-target: DynamoDB_20120810.UpdateItem", b"DynamoDB_20120810.GetItem"),
        ] {
            assert!(protocol.is_write(write, Some(&incarnation)));
            assert!(!protocol.is_write(read, Some(&incarnation)));
        }
        assert!(!Protocol::Postgres.is_write(&with, None));
    }

    #[test]
    fn forged_answer_has_the_stream_of_its_request() {
        let frame =
            |stream: u8, body: &[u8]| [&[4, 0, 1, stream, 10, 0, 0, 0, body.len() as u8], body].concat();
        let request = [frame(2, b"other"), frame(3, b"write")].concat();
        let forged = cql(&request, find(&request, b"write"), true);
        assert_eq!(forged[..5], [0x84, 0, 1, 3, 0]);
        assert_eq!(forged.len(), 9 + forged[8] as usize);
        let frame =
            |stream: u8, body: &[u8]| [&[0, 0, body.len() as u8, 0, 1, 0, 0, 0, stream], body].concat();
        let request = [frame(5, b"other"), frame(7, b"write")].concat();
        let forged = etcd(&request, find(&request, b"write"), "14", "late");
        assert_eq!(forged[3..9], [1, 5, 0, 0, 0, 7]);
        assert_eq!(forged.len(), 9 + forged[2] as usize);
        assert!(forged.ends_with(b"\0\x0bgrpc-status\x0214\0\x0cgrpc-message\x04late"));
    }
}
