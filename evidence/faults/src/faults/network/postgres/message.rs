//! Messages of PostgreSQL's protocol: a letter, a length, and what belongs to the letter.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

const READY: u8 = b'Z';
const REFUSAL: u8 = b'E';
const NOTICE: u8 = b'N';
const COMPLETE: u8 = b'C';

/// What a refusal ends.
#[derive(Clone, Copy)]
pub(super) enum Severity {
    /// The transaction.
    Error,
    /// The connection.
    Fatal,
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message(Vec<u8>);

/// The first message of a client, which has no letter.
pub(super) async fn startup(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    body(from, Vec::new()).await
}

/// Reads a length and what it counts, to the end of `bytes`.
async fn body(from: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let start = bytes.len();
    bytes.extend(length.to_be_bytes());
    bytes.resize(start + (length as usize).max(4), 0);
    from.read_exact(&mut bytes[start + 4..]).await?;
    Ok(bytes)
}

impl Message {
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let letter = from.read_u8().await?;
        Ok(Self(body(from, vec![letter]).await?))
    }

    /// All messages until the server is ready for a request, or ends the connection with a refusal.
    pub(super) async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<Self>> {
        let mut answer = Vec::new();
        loop {
            match Self::read(from).await {
                Ok(message) => answer.push(message),
                Err(_) if answer.last().is_some_and(|last: &Self| last.0[0] == REFUSAL) => return Ok(answer),
                Err(error) => return Err(error),
            }
            if answer.last().is_some_and(|last| last.0[0] == READY) {
                return Ok(answer);
            }
        }
    }

    pub(super) fn new(letter: u8, body: &[u8]) -> Self {
        let length = (body.len() as u32 + 4).to_be_bytes();
        Self([&[letter], &length[..], body].concat())
    }

    pub(super) fn ready() -> Self {
        Self::new(READY, b"I")
    }

    pub(super) fn refusal(severity: Severity, code: &str, what: &str) -> Self {
        let severity = match severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        Self::new(REFUSAL, &fields(severity, code, what))
    }

    pub(super) fn warning(code: &str, what: &str) -> Self {
        Self::new(NOTICE, &fields("WARNING", code, what))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn letter(&self) -> u8 {
        self.0[0]
    }

    /// What belongs to the letter.
    pub(super) fn body(&self) -> &[u8] {
        &self.0[5..]
    }
}

/// Severity twice: in the server's language, and in English.
fn fields(severity: &str, code: &str, what: &str) -> Vec<u8> {
    format!("S{severity}\0V{severity}\0C{code}\0M{what}\0\0").into_bytes()
}

/// Whether an answer says that a write was applied; `None` if it is a refusal.
pub(super) fn applied(answer: &[Message]) -> Option<bool> {
    if answer.iter().any(|message| message.0[0] == REFUSAL) {
        return None;
    }
    Some(answer.iter().filter(|message| message.0[0] == COMPLETE).any(|message| {
        let tag = String::from_utf8_lossy(message.body());
        ["UPDATE ", "INSERT 0 "]
            .iter()
            .any(|verb| tag.strip_prefix(verb).is_some_and(|rows| rows.trim_end_matches('\0') != "0"))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(tag: &str) -> Message {
        Message::new(COMPLETE, format!("{tag}\0").as_bytes())
    }

    #[test]
    fn answer_tells_whether_a_write_was_applied() {
        let ready = Message::ready;
        assert_eq!(applied(&[complete("SELECT 1"), complete("UPDATE 1"), ready()]), Some(true));
        assert_eq!(applied(&[complete("INSERT 0 1"), ready()]), Some(true));
        assert_eq!(applied(&[complete("SELECT 1"), complete("UPDATE 0"), ready()]), Some(false));
        assert_eq!(applied(&[Message::refusal(Severity::Error, "55P03", "lock"), ready()]), None);
    }

    #[tokio::test]
    async fn answer_ends_where_the_server_is_ready() {
        let bytes =
            [complete("UPDATE 1").bytes(), Message::ready().bytes(), complete("next").bytes()].concat();
        let mut from = &bytes[..];
        let answer = Message::read_answer(&mut from).await.unwrap();
        assert_eq!(answer, [complete("UPDATE 1"), Message::ready()]);
        assert_eq!(Message::read(&mut from).await.unwrap(), complete("next"));
    }
}
