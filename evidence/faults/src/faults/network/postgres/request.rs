//! [`Request`]: what a client sends before it waits for the server to be ready again.

use super::message::Message;
use std::{collections::HashMap, io};
use tokio::io::AsyncRead;

const QUERY: u8 = b'Q';
const PARSE: u8 = b'P';
const BIND: u8 = b'B';
const SYNC: u8 = b'S';
/// Describe, execute, close and flush: a sync follows.
const OTHERS_BEFORE_SYNC: [u8; 4] = [b'D', b'E', b'C', b'H'];

/// The prepared statements of a connection: whether each changes a leader record, by name.
#[derive(Default)]
pub(super) struct Prepared(HashMap<Vec<u8>, bool>);

/// One message with statements as text, or all messages of the extended protocol up to the sync.
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// Whether the server answers it. It does not answer the end of the connection.
    pub(super) is_answered: bool,
    /// Whether it changes a leader record.
    pub(super) writes: bool,
}

impl Request {
    pub(super) async fn read(
        from: &mut (impl AsyncRead + Unpin),
        prepared: &mut Prepared,
    ) -> io::Result<Self> {
        let mut request = Self { bytes: Vec::new(), is_answered: true, writes: false };
        loop {
            let message = Message::read(from).await?;
            request.bytes.extend(message.bytes());
            match message.letter() {
                QUERY => request.writes = changes_a_record(message.body()),
                PARSE => prepared.note(message.body()),
                BIND => request.writes |= prepared.writes(message.body()),
                SYNC => return Ok(request),
                letter if OTHERS_BEFORE_SYNC.contains(&letter) => {}
                _ => request.is_answered = false,
            }
            if message.letter() == QUERY || !request.is_answered {
                return Ok(request);
            }
        }
    }
}

impl Prepared {
    /// Notes the statement of a parse: its name, and then its text.
    fn note(&mut self, body: &[u8]) {
        let (name, rest) = string(body);
        self.0.insert(name.to_vec(), changes_a_record(string(rest).0));
    }

    /// Whether the statement of a bind changes a record: its name follows that of the portal.
    fn writes(&self, body: &[u8]) -> bool {
        let (_portal, rest) = string(body);
        self.0.get(string(rest).0).copied().unwrap_or(false)
    }
}

/// A string that ends with a zero, and what follows it.
fn string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

fn changes_a_record(statements: &[u8]) -> bool {
    let text = String::from_utf8_lossy(statements);
    ["UPDATE sysvvm.leader", "INSERT INTO sysvvm.leader"].iter().any(|write| text.contains(write))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str = "UPDATE sysvvm.leader SET epoch = $1";

    fn message(letter: u8, body: &str) -> Vec<u8> {
        Message::new(letter, body.as_bytes()).bytes().to_vec()
    }

    /// What each request of a connection is: how many bytes, whether it is answered, whether it writes.
    async fn requests(connection: &[Vec<u8>]) -> Vec<(usize, bool, bool)> {
        let (bytes, mut prepared, mut found) = (connection.concat(), Prepared::default(), Vec::new());
        let mut from = &bytes[..];
        while !from.is_empty() {
            let request = Request::read(&mut from, &mut prepared).await.unwrap();
            found.push((request.bytes.len(), request.is_answered, request.writes));
        }
        found
    }

    #[tokio::test]
    async fn text_is_a_request_by_itself() {
        let [write, read] = [WRITE, "SELECT 1"].map(|text| message(QUERY, &format!("{text}\0")));
        let sizes = (write.len(), read.len());
        assert_eq!(requests(&[write, read]).await, [(sizes.0, true, true), (sizes.1, true, false)]);
    }

    #[tokio::test]
    async fn prepared_write_is_one_when_it_is_bound() {
        let sync = message(SYNC, "");
        let parsed = |name: &str, text: &str| {
            [message(PARSE, &format!("{name}\0{text}\0\0\0")), message(b'D', "S"), sync.clone()].concat()
        };
        let bound = |name: &str| {
            [message(BIND, &format!("\0{name}\0\0")), message(b'E', "\0"), sync.clone()].concat()
        };
        let sent = [parsed("s0", WRITE), parsed("s1", "SELECT 1"), bound("s1"), bound("s0")];
        let writes = [false, false, false, true];
        let expected: Vec<_> =
            sent.iter().zip(writes).map(|(sent, writes)| (sent.len(), true, writes)).collect();
        assert_eq!(requests(&sent).await, expected);
    }

    #[tokio::test]
    async fn end_of_a_connection_is_not_answered() {
        let end = message(b'X', "");
        assert_eq!(requests(std::slice::from_ref(&end)).await, [(end.len(), false, false)]);
    }
}
