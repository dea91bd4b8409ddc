//! Messages of HTTP 1.1 as DynamoDB and its clients use them: a head with the length of the body, and the
//! body.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The header with the operation of a request.
const OPERATION: &str = "x-amz-target";
const WRITES: [&str; 3] = ["PutItem", "UpdateItem", "DeleteItem"];
const REFUSED: &str = "ConditionalCheckFailedException";

/// A request or an answer as it was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// The length of the head.
    head: usize,
}

impl Message {
    /// Reads the next message; `None` at the end.
    pub(super) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        loop {
            let line = from.read_until(b'\n', &mut bytes).await?;
            match line {
                0 if bytes.is_empty() => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                2 if bytes.ends_with(b"\r\n\r\n") => break,
                _ => {}
            }
        }
        let mut message = Self { head: bytes.len(), bytes };
        let length = message.header("content-length").and_then(|length| length.parse::<usize>().ok());
        let length = length.ok_or_else(|| io::Error::other("a message without a length"))?;
        let body = message.head;
        message.bytes.resize(body + length, 0);
        from.read_exact(&mut message.bytes[body..]).await?;
        Ok(Some(message))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn header(&self, wanted: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.bytes[..self.head]).ok()?;
        let mut headers = head.lines().filter_map(|line| line.split_once(':'));
        headers.find_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then_some(value.trim()))
    }

    /// Whether it is a request that changes an item.
    pub(super) fn writes(&self) -> bool {
        let operation = self.header(OPERATION).and_then(|target| target.rsplit('.').next());
        operation.is_some_and(|operation| WRITES.contains(&operation))
    }

    /// Returns whether a conditional write was applied; `None` if the message is not such an answer.
    pub(super) fn applied(&self) -> Option<bool> {
        let body = || String::from_utf8_lossy(&self.bytes[self.head..]).contains(REFUSED);
        match self.bytes.get(9..12)? {
            b"200" => Some(true),
            b"400" if body() => Some(false),
            _ => None,
        }
    }

    /// Returns DynamoDB's answer after an internal error.
    pub(super) fn internal_error() -> Self {
        Self::forged("500 Internal Server Error", "com.amazonaws.dynamodb.v20120810#InternalServerError")
    }

    /// Returns DynamoDB's answer to a throttled request, which it did not apply.
    pub(super) fn throttled() -> Self {
        let kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
        Self::forged("400 Bad Request", kind)
    }

    fn forged(status: &str, kind: &str) -> Self {
        let body = format!("{{\"__type\":\"{kind}\",\"message\":\"forged\"}}");
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Self { head: head.len(), bytes: [head, body].concat().into_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_messages_in_one_stream_are_read_in_order() {
        let request =
            "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.UpdateItem\r\ncontent-length: 2\r\n\r\n{}";
        let both = [request.as_bytes(), Message::throttled().bytes()].concat();
        let mut stream = both.as_slice();
        let first = Message::read(&mut stream).await.unwrap().unwrap();
        assert_eq!((first.bytes(), first.writes(), first.applied()), (request.as_bytes(), true, None));
        let second = Message::read(&mut stream).await.unwrap().unwrap();
        assert_eq!((&second, second.writes(), second.applied()), (&Message::throttled(), false, None));
        assert_eq!(Message::read(&mut stream).await.unwrap(), None);
    }

    #[test]
    fn outcome_is_recognized_by_status_and_error() {
        let answer = |status| Message::forged(status, REFUSED);
        assert_eq!(answer("200 OK").applied(), Some(true));
        assert_eq!(answer("400 Bad Request").applied(), Some(false));
        assert_eq!(answer("500 Internal Server Error").applied(), None);
        assert_eq!(Message::throttled().applied(), None);
    }

    #[tokio::test]
    async fn truncated_message_is_an_error() {
        let half = Message::throttled();
        for length in [10, half.bytes().len() - 1] {
            assert!(Message::read(&mut &half.bytes()[..length]).await.is_err());
        }
    }
}
